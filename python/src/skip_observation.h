// What a call of a function did: Note [Skipped functions] in skip.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <climits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arete/compile/compile.h"
#include "arete/core/tensor.h"
#include "arete/ops/autocast.h"
#include "arete/prim/backend.h"
#include "program_object.h"
#include "skip.h"
#include "skip_arguments.h"
#include "skip_watches.h"

namespace arete::python::skip {

/// A tensor that the calls make.
struct MadeTensor {
  size_t memory = 0;
  Layout layout{};
  DType dtype = kFloat32;
  bool inference = false, no_grad_view = false;
  uint64_t version = 0;
  const TensorImpl* seen = nullptr;  // as it was observed
  IntrusivePtr<Node> node{};
  uint32_t slot = 0;
  // Of a view:
  std::shared_ptr<MadeTensor> base{};
  const char* made_by = nullptr;
  uint64_t view_version = 0;

  bool is_like(const MadeTensor& o) const {
    return memory == o.memory && layout == o.layout && dtype == o.dtype &&
           inference == o.inference && no_grad_view == o.no_grad_view && version == o.version &&
           bool(node) == bool(o.node) && slot == o.slot && made_by == o.made_by &&
           view_version == o.view_version && bool(base) == bool(o.base) &&
           (!base || base->is_like(*o.base));
  }
  Tensor make(const StoragePtr& storage) const;
};

/// What a function returns.
struct Returned {
  Kind kind;
  size_t number = 0;  // of a tensor that was made; or, `is_argument`, of an argument
  bool is_argument = false;
  Ref constant{};
  std::vector<Returned> items{};

  bool is_like(const Returned& o) const {
    if (kind != o.kind || number != o.number || is_argument != o.is_argument ||
        items.size() != o.items.size())
      return false;
    if (kind == Kind::constant && !is_equal_constant(constant.get(), o.constant.get()))
      return false;
    for (size_t k = 0; k < items.size(); ++k)
      if (!items[k].is_like(o.items[k])) return false;
    return true;
  }
};

/// What was asked for besides the function's arguments.
struct Surroundings {
  uint32_t word = modes().word;
  bool grad_enabled = modes().grad_enabled;
  prim::Context context{};
  DType dtype = default_dtype();
  std::optional<Device> device = default_device;
  int ordinal = current_ordinal();                      // of the current GPU
  ops::AutocastState autocast = ops::autocast_state();  // what regions inside begin with

  bool are_same() const;
  /// No mode but inference is on, and nobody looks.
  static bool are_plain();
};

/// What a call does beside calling operators. Borrows.
struct HostPart {
  std::vector<PyObject*> params{};  // whose gradients are forgotten, or
  PyObject* optimizer = nullptr;    // the one that makes a step
  Stepper* stepper = nullptr;
  bool operator==(const HostPart&) const = default;
};

class Observation {
 public:
  Observation(PyObject* args, PyObject* kwargs) : arguments(args, kwargs) {}
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;
  Arguments arguments;
  Surroundings surroundings;
  compile::PutOffCalls calls;
  // Of each memory: kNew, kTemporary where nobody has it after the calls, the number of an
  // argument, or ~ that of a known tensor.
  static constexpr int kNew = INT_MAX, kTemporary = INT_MAX - 1;
  std::vector<int> sources;
  std::vector<HostPart> before, after;
  std::vector<std::pair<size_t, MadeTensor>> grads;  // of known tensors
  std::vector<MadeTensor> made;
  std::vector<bool> has_grad;  // known tensors, and arguments, before it
  Returned returned{Kind::constant};

  HostPart part(PyObject* params);
  HostPart part(PyObject* optimizer, PyObject* native, Stepper& stepper);
  /// Hands over what it borrows, and has kept so far.
  nanobind::list take_objects();
  bool agrees(const Observation& o) const;

 private:
  PyObject* keep(PyObject* o) { return kept_.emplace_back(Ref::borrow(o)).get(); }
  std::vector<Ref> kept_;
};

/// Runs the function as ever, and sees what it does: (result, Observation), or (result, (reason,
/// for good)).
nanobind::object observe(const ProgramObject& program, nanobind::handle function,
                         const nanobind::tuple& args, const nanobind::dict& kwargs,
                         const Watches& watches);

}  // namespace arete::python::skip
