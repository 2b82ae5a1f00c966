#include "arete/prim/complex_parts.h"

#include "arete/expr/program_cache.h"

namespace arete::prim {

PartView::PartView(const View& v, int part) : strides(v.strides), view(v) {
  for (int64_t& s : strides) s *= 2;
  view.dtype = v.dtype == kComplex64 ? kFloat32 : kFloat64;
  view.strides = strides;
  if (view.data) view.data += part * int64_t(size_of(view.dtype));
}

bool copy_by_parts(Primitives& p, const CopyArgs& args) {
  const View &out = args.out, &in = args.in;
  if (is_complex(out.dtype)) {
    const PartView re(out, 0), im(out, 1);
    if (is_complex(in.dtype)) {
      p.copy({re.view, PartView(in, 0).view});
      p.copy({im.view, PartView(in, 1).view});
    } else {
      p.copy({re.view, in});
      p.fill({im.view, expr::Literal{.f = 0.0}});
    }
    return true;
  }
  if (!is_complex(in.dtype)) return false;
  const PartView re(in, 0), im(in, 1);
  if (out.dtype != kBool) {
    p.copy({out, re.view});
    return true;
  }
  // Nonzero if either part is.
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const DType part = re.view.dtype;
  const expr::Program& either = cache.get(
      pack_key({int(part)}), {part, part}, {}, {kBool}, [](std::span<const expr::Value> v) {
        return std::vector{expr::cast(v[0], expr::Type::boolean) |
                           expr::cast(v[1], expr::Type::boolean)};
      });
  const View parts[] = {re.view, im.view};
  p.pointwise({&either, parts, {&out, 1}, {}});
  return true;
}

}  // namespace arete::prim
