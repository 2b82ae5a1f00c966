// The forms of views whose results are copies or count as no views, made from one table.
#include <algorithm>
#include <string>

#include "arete/ops/call.h"
#include "arete/ops/shape.h"

namespace arete::ops {
namespace {

// "expand_copy" and "unsafe_split" are of what "expand" and "split" show. As PyTorch's, view_copy
// takes any strides.
std::string_view view_name(std::string_view name) {
  if (name == "view_copy") return "reshape";
  if (name.starts_with("unsafe_")) return name.substr(7);
  return name.substr(0, name.size() - 5);
}
const OpRecord& view_record(std::string_view name) { return *find_record(view_name(name)); }

// The arguments are those of the view; further ones have no effect.
Results copies(const Call& c) {
  const OpRecord& view = view_record(c.name());
  const size_t n = schema_of(view).args.size();
  Results out = call_all(view, c.args().first(std::min(n, c.size())));
  // A view that strides cannot give is a copy already.
  const StoragePtr& own = c.tensor(0).storage();
  for (Tensor& t : out)
    if (t.storage() == own || !t.is_contiguous()) t = t.clone(MemoryFormat::contiguous);
  return out;
}

// Their pieces share the tensor's memory and count as tensors of their own, which may be written.
Results apart(const Call& c) {
  Results out = call_all(view_record(c.name()), c.args());
  for (Tensor& t : out) {
    t.impl()->base = {};
    t.impl()->multi_output = false;
  }
  return out;
}

constexpr const char* kCopies[] = {
    "as_strided_copy(Tensor self, int[] size, int[] stride, int? storage_offset=None) -> Tensor",
    "diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor",
    "expand_copy(Tensor self, int[] size, *, bool implicit=False) -> Tensor",
    "narrow_copy(Tensor self, int dim, int start, int length) -> Tensor",
    "permute_copy(Tensor self, int[] dims) -> Tensor",
    "select_copy(Tensor self, int dim, int index) -> Tensor",
    "slice_copy(Tensor self, int dim=0, int? start=None, int? end=None, int step=1) -> Tensor",
    "split_copy(Tensor self, int split_size, int dim=0) -> Tensor[]",
    "split_with_sizes_copy(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
    "squeeze_copy(Tensor self, int[]? dim=None) -> Tensor",
    "t_copy(Tensor self) -> Tensor",
    "transpose_copy(Tensor self, int dim0, int dim1) -> Tensor",
    "unbind_copy(Tensor self, int dim=0) -> Tensor[]",
    "unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor",
    "unsqueeze_copy(Tensor self, int dim) -> Tensor",
    "view_copy(Tensor self, int[] size) -> Tensor",
    "unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]",
    "unsafe_split(Tensor self, int split_size, int dim=0) -> Tensor[]",
    "unsafe_split_with_sizes(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
};

bool define_copies() {
  for (const std::string schema : kCopies) {
    const std::string name = schema.substr(0, schema.find('('));
    const bool is_unsafe = name.starts_with("unsafe_");
    define(schema)
        .doc(std::string(view_name(name)) +
             (is_unsafe ? "() with pieces that count as no views, and may be written."
                        : "() with results that are copies."))
        .compose(is_unsafe ? apart : copies);
  }
  return true;
}
const bool defined = define_copies();

// ---- copies of the whole

const OpRecord& alias_copy_op =
    define("alias_copy(Tensor self) -> Tensor")
        .doc("A copy.")
        .compose([](const Call& c) -> Results { return {c.tensor(0).clone()}; });
const OpRecord& detach_copy_op =
    define("detach_copy(Tensor self) -> Tensor")
        .doc("A copy without history.")
        .compose([](const Call& c) -> Results { return {c.tensor(0).detach().clone()}; });

}  // namespace
}  // namespace arete::ops

ARETE_FAMILY(view_copy)
