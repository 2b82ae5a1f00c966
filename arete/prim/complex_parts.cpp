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
    // Both parts at once: their neighbours in memory are written together.
    static auto& conversions = *new expr::ProgramCache;  // used until exit
    const bool has_parts = is_complex(in.dtype);
    const PartView re(out, 0), im(out, 1), from(in, 0), from_im(in, 1);
    const DType part = re.view.dtype, given = has_parts ? from.view.dtype : in.dtype;
    const expr::Program& convert = conversions.get(
        pack_key({int(given), int(part), has_parts}),
        has_parts ? std::vector{given, given} : std::vector{given}, {}, {part, part},
        [&](std::span<const expr::Value> v) {
          const expr::Value x = expr::cast(v[0], expr::compute_type(part));
          return std::vector{x, has_parts ? expr::cast(v[1], x.type()) : constant_like(x, 0.0)};
        });
    const View outputs[] = {re.view, im.view},
               inputs[] = {has_parts ? from.view : in, from_im.view};
    p.pointwise({&convert, {inputs, has_parts ? size_t(2) : size_t(1)}, outputs, {}});
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
