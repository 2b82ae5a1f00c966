// What reduces gradients while a pass backward goes on, behind nn.parallel.
#include "data_parallel.h"

#include <nanobind/stl/shared_ptr.h>

#include "arete/distributed/data_parallel.h"
#include "arete/distributed/sync_batch_norm.h"
#include "caster.h"
#include "convert.h"
#include "hook_object.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {
namespace {

namespace d = arete::distributed;
using Released = nb::call_guard<WithoutGil>;

// The tensor that a hook's future has: itself, or the only one of a list.
Tensor tensor_in(nb::object value) {
  if (PyList_Check(value.ptr()) && PyList_GET_SIZE(value.ptr()) == 1)
    value = nb::borrow(PyList_GET_ITEM(value.ptr(), 0));
  if (!is_tensor(value.ptr())) {
    PyErr_SetString(PyExc_TypeError, "a communication hook must return a future of a tensor");
    throw nb::python_error();
  }
  return tensor_of(value.ptr());
}

d::CommHook hook_of(HookObject callable) {
  return [hook = std::move(callable)](const d::GradBucket& bucket) -> std::function<Tensor()> {
    return in_python([&]() -> std::function<Tensor()> {
      nb::object future = hook.get()(bucket);
      return [held = HookObject(std::move(future))] {
        return in_python([&] { return tensor_in(held.get().attr("wait")()); });
      };
    });
  };
}

}  // namespace

void bind_data_parallel(nb::module_& m) {
  nb::class_<d::GradBucket>(m, "GradBucket",
                            "The gradients of this process that are reduced together.")
      .def(
          "index", [](const d::GradBucket& b) { return b.index; }, "Of the bucket; 0 comes first.")
      .def(
          "buffer", [](const d::GradBucket& b) { return b.buffer; },
          "All gradients, as one tensor of one dimension.")
      .def(
          "gradients", [](const d::GradBucket& b) { return b.gradients; },
          "The gradients, as views of the buffer.")
      .def("parameters", [](const d::GradBucket& b) { return b.parameters; })
      .def("is_last", [](const d::GradBucket& b) { return b.is_last; })
      .def(
          "set_buffer",
          [](d::GradBucket& b, const Tensor& t) {
            ARETE_CHECK(t.defined(), TypeError("set_buffer", "a tensor is missing"));
            b.set_buffer(t);
          },
          "buffer"_a,
          "Takes the buffer's place in what buffer() and gradients() give: as many elements, in "
          "order, "
          "of any dtype.");

  nb::class_<d::Reducer>(m, "Reducer", nb::dynamic_attr())
      .def(nb::new_([](const std::vector<Tensor>& parameters, const std::vector<std::string>& names,
                       const d::ProcessGroupPtr& group, const std::vector<int64_t>& bucket_bytes,
                       bool static_graph, bool keep_memory, const std::vector<Tensor>& frozen,
                       bool deterministic, const std::vector<size_t>& sparse) {
        return d::Reducer::make(parameters, names, group,
                                {.bucket_bytes = bucket_bytes,
                                 .static_graph = static_graph,
                                 .keep_memory = keep_memory,
                                 .deterministic = deterministic,
                                 .frozen = frozen,
                                 .sparse = sparse});
      }))
      .def("prepare", &d::Reducer::prepare)
      .def("shadow", &d::Reducer::shadow, Released())
      .def("set_divisor", &d::Reducer::set_divisor)
      .def("set_static_graph", &d::Reducer::set_static_graph)
      .def("set_hook",
           [](nb::handle_t<d::Reducer> self, nb::object hook) {
             nb::cast<d::Reducer&>(self).set_hook(hook_of(kept_elsewhere(hook)));
             nb::setattr(self, "hook", hook);
           })
      .def("set_after",
           [](d::Reducer& r, nb::object callable) {
             r.set_after(
                 [held = HookObject(std::move(callable))] { in_python([&] { held.get()(); }); });
           })
      .def(
          "set_builtin_hook",
          [](d::Reducer& r, bool half) {
            r.set_hook(half ? d::compress_hook(r.group(), kFloat16) : d::allreduce_hook(r.group()));
          })
      .def_prop_ro("buckets", &d::Reducer::buckets)
      .def_prop_ro("rebuilt", &d::Reducer::rebuilt);

  m.def(
      "broadcast_coalesced",
      [](d::ProcessGroup& group, const std::vector<Tensor>& tensors, int src) {
        d::broadcast_coalesced(group, tensors, src);
      },
      Released());
  m.def("sync_batch_norm", &d::sync_batch_norm, nb::arg(), nb::arg().none(), nb::arg().none(),
        nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg(), Released());
  m.def(
      "check_same_parameters",
      [](d::ProcessGroup& group, const std::vector<Tensor>& parameters) {
        d::check_same_parameters(group, parameters);
      },
      Released());
}

}  // namespace arete::python
