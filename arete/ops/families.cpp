#include "arete/ops/families.h"

namespace arete::ops {

// One line per file of records.
#define ARETE_FAMILIES(X) \
  X(activation)           \
  X(attention)            \
  X(bessel)               \
  X(binary)               \
  X(channel)              \
  X(collective)           \
  X(complex)              \
  X(conv)                 \
  X(conv_functions)       \
  X(copy)                 \
  X(creation)             \
  X(creation_like)        \
  X(cross_entropy)        \
  X(ctc_loss)             \
  X(diagonal)             \
  X(difference)           \
  X(distance)             \
  X(distributions)        \
  X(dropout)              \
  X(einsum)               \
  X(embed_window)         \
  X(embedding)            \
  X(extreme)              \
  X(feed_forward)         \
  X(fft)                  \
  X(fft_core)             \
  X(fill)                 \
  X(fused_norm)           \
  X(fused_norm_backward)  \
  X(grid_sample)          \
  X(histogram)            \
  X(im2col)               \
  X(index)                \
  X(index_put)            \
  X(index_reduce)         \
  X(index_slices)         \
  X(interpolate)          \
  X(linalg_cholesky)      \
  X(linalg_distance)      \
  X(linalg_functions)     \
  X(linalg_inverse)       \
  X(linalg_ldl)           \
  X(linalg_least_squares) \
  X(linalg_lu)            \
  X(linalg_norm)          \
  X(linalg_products)      \
  X(linalg_qr)            \
  X(linalg_solve)         \
  X(linalg_spectral)      \
  X(linalg_vectors)       \
  X(linear)               \
  X(loss)                 \
  X(margin_loss)          \
  X(mask)                 \
  X(matmul)               \
  X(moments)              \
  X(multinomial)          \
  X(nn)                   \
  X(norm)                 \
  X(numeric)              \
  X(pad)                  \
  X(pad_modes)            \
  X(polynomial)           \
  X(pool)                 \
  X(pool_functions)       \
  X(product)              \
  X(random)               \
  X(reduce)               \
  X(reduce_pairs)         \
  X(scaled_mm)            \
  X(scan)                 \
  X(search)               \
  X(shape)                \
  X(shape_compose)        \
  X(shape_copy)           \
  X(shape_like)           \
  X(shape_split)          \
  X(shape_stack)          \
  X(signal_windows)       \
  X(softmax)              \
  X(softmax_nll)          \
  X(sort)                 \
  X(special)              \
  X(statistics)           \
  X(stft)                 \
  X(take_put)             \
  X(ternary)              \
  X(unary)                \
  X(unique)               \
  X(unpool)               \
  X(vector_norm)          \
  X(view_copy)            \
  X(view_scatter)

#define ARETE_DECLARE(name) void family_##name();
ARETE_FAMILIES(ARETE_DECLARE)
#undef ARETE_DECLARE

void link_families() {
#define ARETE_LINK(name) family_##name();
  ARETE_FAMILIES(ARETE_LINK)
#undef ARETE_LINK
}

}  // namespace arete::ops
