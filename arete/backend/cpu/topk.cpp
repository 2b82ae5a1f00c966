// The k first elements of an order, without sorting the rest.
#include <algorithm>
#include <memory>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/sort_items.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"

namespace arete::cpu {
namespace {

using prim::TopkArgs;

// Keeps the k smallest of the items offered, in growing order of position. A few are kept in order.
// Candidates for more gather in a buffer of 2 k or more; when it is full the k smallest stay. The
// largest that is kept is the bound that later ones must beat.
template <class Item>
class Selection {
 public:
  Selection(int64_t k, int64_t capacity) : k_(k), capacity_(capacity), items_(new Item[capacity]) {}

  static constexpr int64_t kFew = 8;

  void clear() {
    count_ = 0;
    bounded_ = false;
  }
  void offer(Item item) {
    if (bounded_ && !(item < bound_)) return;
    if (k_ > kFew) {
      items_[count_++] = item;
      if (count_ == capacity_) prune();
      return;
    }
    int64_t at = bounded_ ? k_ - 1 : count_++;
    for (; at > 0 && item < items_[at - 1]; --at) items_[at] = items_[at - 1];
    items_[at] = item;
    bounded_ = count_ == k_;
    if (bounded_) bound_ = items_[k_ - 1];
  }
  /// No later item with this key is wanted.
  bool rejects(typename Item::Key key) const { return bounded_ && key >= bound_.key(); }
  /// The k smallest, in order.
  const Item* finish() {
    if (count_ > k_) prune();
    if (k_ > kFew) std::sort(items_.get(), items_.get() + count_);
    return items_.get();
  }
  int64_t count() const { return count_; }

 private:
  void prune() {
    std::nth_element(items_.get(), items_.get() + k_ - 1, items_.get() + count_);
    bound_ = items_[k_ - 1];
    bounded_ = true;
    count_ = k_;
  }

  int64_t k_, capacity_, count_ = 0;
  std::unique_ptr<Item[]> items_;
  Item bound_{};
  bool bounded_ = false;
};

template <class T, class Item>
void select_range(Selection<Item>& selection, const T* in, int64_t stride, int64_t begin,
                  int64_t end, bool descending) {
  using Key = typename Item::Key;
  constexpr int64_t kBlock = 64;
  for (int64_t b = begin; b < end; b += kBlock) {
    const int64_t n = std::min(kBlock, end - b);
    Key keys[kBlock], least = Key(~Key(0));
    for (int64_t i = 0; i < n; ++i) {
      keys[i] = Key(sort_key(in[(b + i) * stride], descending));
      least = std::min(least, keys[i]);
    }
    if (selection.rejects(least)) continue;
    for (int64_t i = 0; i < n; ++i) selection.offer(Item(keys[i], b + i));
  }
}

template <class T, class Item>
void topk_as(const TopkArgs& t) {
  const bool scalar = t.in.rank() == 0;
  const int64_t n = scalar ? 1 : t.in.sizes[t.dim],
                k = scalar ? t.values.numel() : t.values.sizes[t.dim];
  const int64_t si = scalar ? 0 : t.in.strides[t.dim], sv = scalar ? 0 : t.values.strides[t.dim],
                sx = scalar ? 0 : t.indices.strides[t.dim];
  const Walk<3> walk(t.in.sizes, t.dim, {&t.in, &t.values, &t.indices});
  ARETE_ASSERT(k <= n);
  if (k == 0 || walk.count() == 0) return;
  // Short lanes of which not a few are wanted are put in order.
  const bool ranked =
      sizeof(T) <= 4 && n <= kernels::kMostRanked && (k > Selection<Item>::kFew || 4 * k > n);
  const int64_t capacity = std::min(n, 2 * k + 32) + 1;
  const auto for_lanes = [&](int64_t begin, int64_t end, int parts) {
    Selection<Item> selection(k, capacity);
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t lanes) {
      for (int64_t l = 0; l < lanes; ++l) {
        const T* in = reinterpret_cast<const T*>(t.in.data + w.offset(0) + l * w.stride(0));
        T* values = reinterpret_cast<T*>(t.values.data + w.offset(1) + l * w.stride(1));
        int64_t* indices =
            reinterpret_cast<int64_t*>(t.indices.data + w.offset(2) + l * w.stride(2));
        if (ranked) {
          uint32_t keys[kernels::kMostRanked];
          int32_t ranks[kernels::kMostRanked];
          for (int64_t i = 0; i < n; ++i) keys[i] = uint32_t(sort_key(in[i * si], t.largest));
          kernels::table().rank(keys, ranks, n);
          for (int64_t i = 0; i < n; ++i) {
            if (ranks[i] >= k) continue;
            values[ranks[i] * sv] = in[i * si];
            indices[ranks[i] * sx] = i;
          }
          continue;
        }
        selection.clear();
        if (parts == 1) {
          select_range(selection, in, si, 0, n, t.largest);
        } else {
          std::vector<std::unique_ptr<Selection<Item>>> part;
          for (int p = 0; p < parts; ++p)
            part.push_back(std::make_unique<Selection<Item>>(k, capacity));
          parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
            for (int64_t p = first; p < last; ++p) {
              select_range(*part[p], in, si, n * p / parts, n * (p + 1) / parts, t.largest);
              part[p]->finish();
            }
          });
          for (auto& p : part) {
            const Item* items = p->finish();
            for (int64_t i = 0; i < p->count(); ++i) selection.offer(items[i]);
          }
        }
        const Item* best = selection.finish();
        for (int64_t i = 0; i < k; ++i) {
          const int64_t from = best[i].position();
          values[i * sv] = in[from * si];
          indices[i * sx] = from;
        }
      }
    });
  };
  const int threads = num_threads();
  if (n >= (1 << 17) && walk.count() < 2 * threads && k <= n / (4 * threads))
    for_lanes(0, walk.count(), threads);
  else
    parallel_for(0, walk.count(), grain_of_steps(n),
                 [&](int64_t begin, int64_t end) { for_lanes(begin, end, 1); });
}

}  // namespace

void CpuBackend::topk(const TopkArgs& args) {
  ARETE_ASSERT(args.values.dtype == args.in.dtype && args.indices.dtype == kInt64);
  visit_dtype(args.in.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_complex(dtype_of<T>)) {
      throw NotImplementedError("topk", "complex numbers have no order").argument("input");
    } else {
      const bool fits = args.in.rank() == 0 || args.in.sizes[args.dim] <= (int64_t(1) << 32);
      using Small = std::conditional_t<sizeof(T) <= 4, PackedItem, WideItem>;
      if (fits)
        topk_as<T, Small>(args);
      else
        topk_as<T, WideItem>(args);
    }
  });
}

}  // namespace arete::cpu
