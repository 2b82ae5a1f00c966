// Parameters of which each process keeps a part, behind distributed.fsdp.
#include "arete/distributed/sharding.h"

#include <nanobind/stl/shared_ptr.h>

#include "caster.h"
#include "convert.h"
#include "data_parallel.h"
#include "hook_object.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {
namespace {

namespace d = arete::distributed;
using Released = nb::call_guard<WithoutGil>;
using Group = d::ShardedParameters;
using GroupPtr = std::shared_ptr<Group>;

std::optional<std::vector<std::weak_ptr<Group>>> weak(const std::vector<GroupPtr>& list) {
  return std::vector<std::weak_ptr<Group>>(list.begin(), list.end());
}

}  // namespace

void bind_sharding(nb::module_& m) {
  nb::class_<d::ShardedNetwork>(m, "ShardedNetwork")
      .def(nb::init<>())
      .def("begin_forward", &d::ShardedNetwork::begin_forward);
  nb::class_<Group>(m, "ShardedParameters", nb::dynamic_attr())
      .def(nb::new_([](const std::vector<Tensor>& parameters, const std::vector<std::string>& names,
                       const d::ProcessGroupPtr& group, const d::ProcessGroupPtr& replicas,
                       std::optional<DType> param_dtype, std::optional<DType> reduce_dtype,
                       bool reshard_after_forward, std::optional<Device> offload_from,
                       bool pin_memory, std::vector<int> dims, const d::ProcessGroupPtr& kept_by) {
             return Group::make(parameters, names, group,
                                {.param_dtype = param_dtype,
                                 .reduce_dtype = reduce_dtype,
                                 .reshard_after_forward = reshard_after_forward,
                                 .kept_by = kept_by,
                                 .offload_from = offload_from,
                                 .pin_memory = pin_memory,
                                 .replicas = replicas,
                                 .dims = std::move(dims)});
           }),
           "parameters"_a, "names"_a, "group"_a, "replicas"_a.none(), "param_dtype"_a.none(),
           "reduce_dtype"_a.none(), "reshard_after_forward"_a, "offload_from"_a.none(),
           "pin_memory"_a, "dims"_a, "kept_by"_a.none())
      .def("join", &Group::join)
      .def(
          "before_forward",
          [](Group& g, const std::vector<Tensor>& inputs) { g.before_forward(inputs); }, Released())
      .def(
          "after_forward",
          [](Group& g, const std::vector<Tensor>& outputs) { g.after_forward(outputs); },
          Released())
      .def("unshard", &Group::unshard, "shows"_a, Released())
      .def("reshard", &Group::reshard, Released())
      .def(
          "gathered",
          [](const Group& g, size_t index, std::optional<Tensor> others) {
            return g.gathered(index, others.value_or(Tensor()));
          },
          "index"_a, "others"_a = nb::none(), Released())
      .def("rebind", [](Group& g, const std::vector<Tensor>& parameters) { g.rebind(parameters); })
      .def("first_row", &Group::first_row)
      .def("full_sizes",
           [](const Group& g, size_t index) {
             const IntList s = g.full_sizes(index);
             return std::vector<int64_t>(s.begin(), s.end());
           })
      .def_prop_ro("is_unsharded", &Group::is_unsharded)
      .def_prop_rw(
          "reshard_after_forward", [](const Group& g) { return g.options.reshard_after_forward; },
          [](Group& g, bool on) {
            g.options.reshard_after_forward = on;
            g.options.kept_by = nullptr;
          })
      .def_rw("reshard_after_backward", &Group::reshard_after_backward)
      .def_rw("reduces", &Group::reduces)
      .def_rw("all_reduces", &Group::all_reduces)
      .def_rw("divisor", &Group::divisor)
      .def(
          "set_all_reduce_hook",
          [](nb::handle_t<Group> self, nb::object hook) {
            Group& g = nb::cast<Group&>(self);
            g.all_reduce_hook = nullptr;
            nb::setattr(self, "hook", hook);
            if (hook.is_none()) return;
            g.all_reduce_hook = [held = kept_elsewhere(hook)](const Tensor& gradients) {
              in_python([&] { held.get()(gradients); });
            };
          },
          nb::arg().none())
      .def("set_forward_prefetch",
           [](Group& g, const std::vector<GroupPtr>& list) { g.forward_prefetch = weak(list); })
      .def("set_backward_prefetch",
           [](Group& g, const std::vector<GroupPtr>& list) { g.backward_prefetch = weak(list); });
}

}  // namespace arete::python
