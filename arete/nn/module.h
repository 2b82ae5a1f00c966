// The base of layers and networks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"
#include "arete/nn/state_dict.h"

namespace arete::nn {

// Note [Modules are handles]
// A Module object is a handle, as a Tensor is: it points at a shared body that owns parameters,
// buffers, children, hooks and the training flag. Copying a module, passing it by value, putting it
// into a Sequential or capturing it in a lambda never copies weights: all copies are the same
// network. A moved-from module is as usable as a copied one. Members of a subclass are handles
// (other modules, Parameter, Buffer) or settings that stay as they were constructed; anything that
// changes during training belongs into a buffer, so that all handles see it.
//   An independent network is made by nn::clone(net). It copies the C++ object while every Module,
// Parameter and Buffer that is copied on the way is replaced by its counterpart in the new network
// (weights shared inside the network stay shared). A member declared as plain Tensor would still
// point at the original, so clone() counts references and refuses, naming the parameter.

/// A tensor that a module owns, as a member of that module: a Tensor in every respect, which
/// nn::clone() replaces by the new network's own. Members must be declared as Parameter (or
/// Buffer), not as Tensor.
class Parameter : public Tensor {
 public:
  Parameter() = default;
  Parameter(const Tensor& t) : Tensor(t) {}
  Parameter(const Parameter& other);
  Parameter(Parameter&& other) noexcept = default;
  Parameter& operator=(const Parameter&) = default;
  Parameter& operator=(Parameter&&) = default;
};
/// The same for tensors that are state but not trained, such as running means.
using Buffer = Parameter;

class Module;
struct ModuleAccess;

/// One module of a tree and its dotted name ("" for the root). The pointer is valid while the tree
/// is.
struct NamedModule {
  std::string name;
  Module* module;
};

/// What load_state_dict found (names with dots).
struct LoadResult {
  std::vector<std::string> missing_keys, unexpected_keys;
};

/// Base class of all layers and of users' networks:
///
///     struct Net : nn::Module {
///       nn::Linear fc1 = child("fc1", nn::Linear(784, 256));
///       nn::Linear fc2 = child("fc2", nn::Linear(256, 10));
///       Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
///     };
///
/// Module objects are handles to shared state: see Note [Modules are handles] above. Calling is
/// thread-safe as long as nobody changes the network; hooks must be thread-safe themselves.
class Module {
 public:
  using Hook = std::function<Tensor(Module& module, const Tensor& input, const Tensor& output)>;
  using PreHook = std::function<Tensor(Module& module, const Tensor& input)>;

  Module();
  Module(const Module& other);
  Module& operator=(const Module& other) = default;
  virtual ~Module();

  /// What the module computes. Modules with several inputs declare a forward of their own and are
  /// called through it; the default reports that this one is missing (NotImplementedError).
  virtual Tensor forward(const Tensor& input);
  /// Pre-hooks, forward(), hooks. Constness of a handle is shallow, as with Tensor.
  Tensor operator()(const Tensor& input) const;
  /// The class name without namespaces, as printed.
  virtual std::string name() const;
  /// What the printed tree shows in the parentheses: "in_features=4, out_features=2".
  virtual std::string extra_repr() const { return ""; }
  /// PyTorch's tree of the module and its children.
  std::string to_string() const;

  // ---- contents, own ones first, then those of the children, in order of registration
  /// All trainable tensors, each once even where it is shared.
  std::vector<Tensor> parameters(bool recurse = true) const;
  StateDict named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  StateDict named_buffers(bool recurse = true) const;
  /// Direct children.
  std::vector<NamedModule> named_children() const;
  std::vector<Module*> children() const;
  /// This module ("") and all below it, each once.
  std::vector<NamedModule> named_modules();
  std::vector<Module*> modules();
  /// A parameter, buffer or module by its dotted name; ValueError naming what is there otherwise.
  Tensor get_parameter(std::string_view name) const;
  Tensor get_buffer(std::string_view name) const;
  Module& get_submodule(std::string_view name);
  /// Number of elements of all parameters.
  int64_t num_parameters(bool only_trainable = false) const;
  /// This module as an M, or null if it is none: `if (auto* linear = m.as<nn::Linear>())`.
  template <class M>
  M* as() {
    return dynamic_cast<M*>(this);
  }

  // ---- state
  bool is_training() const noexcept;
  /// Sets the flag here and in all modules below (dropout, batch norm).
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  /// Whether parameters want gradients.
  Module& requires_grad_(bool on = true);
  /// Forgets all gradients (or sets them to zero).
  void zero_grad(bool set_to_none = true);
  /// Moves parameters, their gradients and buffers; only floating ones change their dtype. The
  /// parameters stay the same objects, so that optimizers keep working.
  Module& to(Device device);
  Module& to(DType dtype);
  Module& to(Device device, DType dtype);
  /// Lays out parameters and buffers of rank 4 and 5 in another order; layers keep to that of their
  /// input, so that a network in channels_last computes in it throughout.
  Module& to(MemoryFormat format);
  Module& half() { return to(kFloat16); }
  Module& bfloat16() { return to(kBFloat16); }
  Module& cpu() { return to(kCPU); }
  Module& cuda(int index = -1) { return to(Device(DeviceType::cuda, index)); }
  /// Calls `f` for all modules below, children before their parents, and this one last.
  Module& apply(const std::function<void(Module&)>& f);

  /// Parameters and persistent buffers under PyTorch's names and layouts. The tensors share memory
  /// with the module and carry no history: clone() them to keep a snapshot.
  StateDict state_dict() const;
  /// Copies values in (converting dtype and device). With `strict` every key must match; without,
  /// missing and unexpected ones are reported in the result. One ValueError names all missing,
  /// unexpected and mismatching keys; nothing is changed then.
  LoadResult load_state_dict(const StateDict& state, bool strict = true);

  // ---- hooks; the returned id is for remove_hook
  /// Called before forward(); a defined result replaces the input.
  uint64_t register_forward_pre_hook(PreHook hook);
  /// Called after forward(); a defined result replaces the output.
  uint64_t register_forward_hook(Hook hook);
  void remove_hook(uint64_t id);
  bool has_hooks() const noexcept;

  // ---- building
  /// Makes `value` (a leaf of floating dtype) a parameter of this module; an undefined one
  /// registers the absence of an optional parameter. Errors: names with dots, empty or used names.
  Parameter register_parameter(std::string_view name, const Tensor& value,
                               bool requires_grad = true);
  /// Adds state that is not trained; buffers that are not persistent are left out of state_dict().
  Buffer register_buffer(std::string_view name, const Tensor& value, bool persistent = true);
  /// Adds a child (or replaces the one of that name) and returns a handle to it, for the member
  /// that holds it. ValueError if the child contains this module.
  template <class M>
  M child(std::string_view name, const M& module) {
    static_assert(std::is_base_of_v<Module, M>, "child() takes modules");
    static_assert(!std::is_same_v<Module, M>, "the concrete type of a child must be known");
    add_child(name, module,
              [](const Module& m) -> Module* { return new M(static_cast<const M&>(m)); });
    return module;
  }
  /// PyTorch's name for child().
  template <class M>
  M register_module(std::string_view name, const M& module) {
    return child(name, module);
  }
  /// The child at a position, in order of registration.
  Module& child_at(size_t position) const;
  size_t num_children() const;

 private:
  friend struct ModuleAccess;
  struct Body;
  // (Pointers without an owner, since each M of a shared one takes a compiler long.)
  using Copier = Module* (*)(const Module&);
  void add_child(std::string_view name, const Module& module, Copier copier);
  Module& convert(std::optional<Device> device, std::optional<DType> dtype,
                  std::optional<MemoryFormat> format = {});
  std::shared_ptr<Body> body_;
};

namespace detail {
/// While it lives, copies of modules and parameters on this thread are deep; see
/// Note [Modules are handles].
class CloneScope {
 public:
  explicit CloneScope(const Module& original);
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  CloneScope& operator=(const CloneScope&) = delete;
  /// ValueError if the copy still holds tensors or modules of the original.
  void finish();

 private:
  struct State;
  friend struct nn::ModuleAccess;
  std::unique_ptr<State> state_;
};
}  // namespace detail

/// An independent copy of a network: own weights, buffers and flags, the same structure. ValueError
/// if a member declared as Tensor keeps the original's weights. No other thread may use the network
/// meanwhile.
template <class M>
M clone(const M& module) {
  detail::CloneScope scope(module);
  M copy(module);
  scope.finish();
  return copy;
}

}  // namespace arete::nn
