#include "arete/ops/families.h"

namespace arete::ops {

// One line per file of records.
#define ARETE_FAMILIES(X) \
  X(activation)           \
  X(attention)            \
  X(bessel)               \
  X(binary)               \
  X(conv)                 \
  X(conv_functions)       \
  X(copy)                 \
  X(creation)             \
  X(cross_entropy)        \
  X(difference)           \
  X(distance)             \
  X(einsum)               \
  X(embed_window)         \
  X(extreme)              \
  X(fused_norm)           \
  X(index)                \
  X(index_put)            \
  X(index_reduce)         \
  X(interpolate)          \
  X(linear)               \
  X(loss)                 \
  X(mask)                 \
  X(matmul)               \
  X(multinomial)          \
  X(nn)                   \
  X(norm)                 \
  X(numeric)              \
  X(pad)                  \
  X(polynomial)           \
  X(pool)                 \
  X(pool_functions)       \
  X(product)              \
  X(random)               \
  X(reduce)               \
  X(reduce_pairs)         \
  X(scan)                 \
  X(search)               \
  X(shape)                \
  X(shape_compose)        \
  X(shape_copy)           \
  X(shape_split)          \
  X(softmax)              \
  X(softmax_nll)          \
  X(sort)                 \
  X(special)              \
  X(statistics)           \
  X(ternary)              \
  X(unary)                \
  X(unique)

#define ARETE_DECLARE(name) void family_##name();
ARETE_FAMILIES(ARETE_DECLARE)
#undef ARETE_DECLARE

void link_families() {
#define ARETE_LINK(name) family_##name();
  ARETE_FAMILIES(ARETE_LINK)
#undef ARETE_LINK
}

}  // namespace arete::ops
