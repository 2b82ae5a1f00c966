// Values that are only converted to a wider type: read as they were, or made so.
#include <algorithm>
#include <iterator>

#include "arete/compile/fuse_internal.h"
#include "arete/prim/recorder.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::Primitive;
using prim::View;
using Groups = std::vector<std::unique_ptr<Group>>;

// Instructions of a conversion, with what may be scaled on the way.
constexpr size_t kFewInstructions = 4;

/// The conversion of a narrower operand to a temporary, if the group is one.
const Stage* conversion_of(const Group& group, Buffers& buffers) {
  const StagedCall* s = group.staged();
  if (!s || s->stages.size() != 1 || s->stages[0].kind != Stage::Kind::elements) return nullptr;
  const Stage& stage = s->stages[0];
  if (stage.inputs.size() != 1 || stage.outputs.size() != 1 || stage.inputs[0].is_table ||
      !stage.slots.empty() || stage.program->code().size() > kFewInstructions ||
      functions_of(*stage.program) > 0)
    return nullptr;
  const Place &in = stage.inputs[0], &out = stage.outputs[0];
  const bool is_wider = size_of(out.dtype) > size_of(in.dtype);
  if (!is_wider || out.use.buffer < 0 || in.use.buffer == out.use.buffer) return nullptr;
  return buffers[out.use.buffer].temporary ? &stage : nullptr;
}

bool touches(const Group& group, int buffer) {
  return std::ranges::any_of(group.uses(), [&](const Use& u) { return u.buffer == buffer; });
}

/// A gather from what was converted: from what was there before, and its results are converted.
std::optional<Groups> gather_before(const Group& reader, const Stage& cast, Buffers& buffers,
                                    const PlanOptions& options) {
  const auto& args = *static_cast<const prim::GatherArgs*>(reader.call().args());
  const Place &in = cast.inputs[0], &out = cast.outputs[0];
  if (args.in.data != out.data || args.in.dtype != out.dtype ||
      buffers.of(args.index) == out.use.buffer)
    return std::nullopt;
  const std::optional<Layout> after = view(out.layout, args.in.sizes),
                              before = view(in.layout, args.in.sizes);
  if (!after || !before || !std::ranges::equal(after->strides, args.in.strides))
    return std::nullopt;
  const Layout found{Shape(args.out.sizes)};
  const size_t bytes = size_t(args.out.numel()) * size_of(in.dtype);
  const Device device = reader.call().device();
  const StoragePtr memory = buffers.add_temporary(device, bytes);
  const View values(memory->data(), in.dtype, found.sizes, found.strides, memory.get());

  prim::GatherArgs gather = args;
  gather.in = View(in.data, in.dtype, before->sizes, before->strides, in.storage);
  gather.out = values;
  Groups both;
  both.push_back(std::make_unique<Group>(prim::as_recorded(device, gather), buffers, options));
  both.push_back(std::make_unique<Group>(
      prim::as_recorded(device, prim::PointwiseArgs{.program = cast.program.get(),
                                                    .inputs = {&values, 1},
                                                    .outputs = {&args.out, 1},
                                                    .params = cast.params,
                                                    .context = args.context}),
      buffers, options));
  return both;
}

/// The sums of rows beside a product as a call of their own, where they are only converted: so the
/// conversion is part of it.
void split_sums(Groups& groups, Buffers& buffers, const PlanOptions& options) {
  for (size_t k = 0; k < groups.size(); ++k) {
    if (groups[k]->call().primitive() != Primitive::gemm) continue;
    const auto& gemm = *static_cast<const prim::GemmArgs*>(groups[k]->call().args());
    if (!gemm.a_sum) continue;
    const int b = buffers.of(gemm.a_sum);
    if (b < 0 || !buffers[b].temporary) continue;
    int others = 0;
    bool converts = false;
    for (size_t r = k + 1; r < groups.size(); ++r)
      if (touches(*groups[r], b)) {
        ++others;
        const StagedCall* s = groups[r]->staged();
        converts = s && s->stages.size() == 1 && s->stages[0].inputs.size() == 1 &&
                   s->stages[0].kind == Stage::Kind::elements &&
                   size_of(s->stages[0].outputs[0].dtype) > size_of(gemm.a_sum.dtype);
      }
    if (others != 1 || !converts) continue;
    const Device device = groups[k]->call().device();
    const size_t rank = gemm.a.sizes.size();
    const int64_t rows = gemm.a.sizes[rank - 2];
    const Shape sizes{rows, 1}, strides{gemm.a_sum.strides[0], 1};
    View a = gemm.a;
    a.sizes = a.sizes.last(2), a.strides = a.strides.last(2);
    const View sums(gemm.a_sum.data, gemm.a_sum.dtype, sizes, strides, gemm.a_sum.storage);
    auto sum = std::make_unique<Group>(
        prim::as_recorded(device, prim::ReduceArgs{.monoid = prim::Monoid::sum,
                                                   .space = a.sizes,
                                                   .reduced = 0b10,
                                                   .inputs = {&a, 1},
                                                   .out = sums,
                                                   .context = gemm.context}),
        buffers, options);
    prim::GemmArgs alone = gemm;
    alone.a_sum = View{};
    sum->numbers = groups[k]->numbers;
    groups[k] = std::make_unique<Group>(prim::as_recorded(device, alone), buffers, options);
    groups[k]->numbers = sum->numbers;
    groups.insert(groups.begin() + std::ptrdiff_t(++k), std::move(sum));
  }
}

}  // namespace

std::vector<int> readers_of(const Groups& groups, const Buffers& buffers) {
  std::vector<int> readers(size_t(buffers.size()));
  for (const auto& g : groups)
    for (const int b : g->reads()) ++readers[size_t(b)];
  return readers;
}

void read_before_casts(Groups& groups, Buffers& buffers, const PlanOptions& options) {
  if (!options.exact) split_sums(groups, buffers, options);
  const std::vector<int> readers = readers_of(groups, buffers);
  for (size_t c = 0; c < groups.size(); ++c) {
    const Stage* const cast = conversion_of(*groups[c], buffers);
    if (!cast) continue;
    const Place &in = cast->inputs[0], &out = cast->outputs[0];
    const int b = out.use.buffer;
    if (readers[size_t(b)] < 2) continue;  // one is put together with it in any case
    const auto is_read_elsewhere = [&](const Use& u) {
      return u.buffer != b && (!buffers[u.buffer].temporary || u.buffer >= int(readers.size()) ||
                               readers[size_t(u.buffer)] > 0);
    };
    std::vector<std::pair<size_t, Groups>> instead;
    bool may = std::none_of(groups.begin(), groups.begin() + std::ptrdiff_t(c),
                            [&](const auto& g) { return touches(*g, b); });
    // Up to the last reader, what is read instead stays as it was.
    bool is_over = false;
    for (size_t r = c + 1; r < groups.size() && may; ++r) {
      const Group& reader = *groups[r];
      if (touches(reader, b)) {
        may = !is_over && std::ranges::none_of(reader.uses(), [&](const Use& u) {
          return u.buffer == b && u.access != Access::read;
        });
        if (!may) break;
        Groups its;
        if (reader.call().primitive() == Primitive::gather) {
          std::optional<Groups> both = gather_before(reader, *cast, buffers, options);
          if (!both)
            may = false;
          else
            its = *std::move(both);
        } else {
          auto joined = std::make_unique<Group>(groups[c]->call().clone(), buffers, options);
          Group next(reader.call().clone(), buffers, options);
          may = !joined->take(next, is_read_elsewhere);
          its.push_back(std::move(joined));
        }
        instead.emplace_back(r, std::move(its));
      }
      is_over = is_over || std::ranges::any_of(reader.uses(), [&](const Use& u) {
                  return u.access != Access::read && collide(u, in.use);
                });
    }
    if (!may || instead.empty()) continue;
    for (size_t k = instead.size(); k-- > 0;) {
      auto& [at, its] = instead[k];
      its.front()->numbers = groups[at]->numbers;
      std::ranges::copy(groups[c]->numbers, std::back_inserter(its.back()->numbers));
      groups.erase(groups.begin() + std::ptrdiff_t(at));
      groups.insert(groups.begin() + std::ptrdiff_t(at), std::make_move_iterator(its.begin()),
                    std::make_move_iterator(its.end()));
    }
    groups.erase(groups.begin() + std::ptrdiff_t(c));
    --c;
  }
}

}  // namespace arete::compile
