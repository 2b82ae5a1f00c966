// Modules made of modules.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include "arete/nn/module.h"

namespace arete::nn {

/// A function of one tensor as a module, without parameters of its own.
class Lambda : public Module {
 public:
  explicit Lambda(std::function<Tensor(const Tensor&)> f) : function_(std::move(f)) {}
  Tensor forward(const Tensor& input) override { return function_(input); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

namespace detail {
/// Walks the children of a container as Module&.
class ChildIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Module;
  using difference_type = std::ptrdiff_t;
  using pointer = Module*;
  using reference = Module&;
  ChildIterator(const Module* m, size_t at, Module& (*get)(const Module&, size_t))
      : module_(m), at_(at), get_(get) {}
  Module& operator*() const { return get_(*module_, at_); }
  Module* operator->() const { return &**this; }
  ChildIterator& operator++() {
    ++at_;
    return *this;
  }
  bool operator==(const ChildIterator& o) const { return at_ == o.at_; }

 private:
  const Module* module_;
  size_t at_;
  Module& (*get_)(const Module&, size_t);
};
}  // namespace detail

/// Children in a row without a forward() of its own; names are their positions.
///
///     nn::ModuleList blocks = child("blocks", nn::ModuleList());
///     for (int i = 0; i < 4; ++i) blocks.append(Block(64));      // in the constructor
///     for (nn::Module& block : blocks) x = block(x);             // in forward()
class ModuleList : public Module {
 public:
  ModuleList() = default;
  /// The module becomes the last child; returns the list.
  template <class M>
  ModuleList& append(const M& module) {
    child(std::to_string(size()), module);
    return *this;
  }
  template <class M>
  ModuleList& push_back(const M& module) {
    return append(module);
  }
  size_t size() const { return num_children(); }
  bool empty() const { return size() == 0; }
  /// IndexError outside [0, size()).
  Module& operator[](size_t i) const { return child_at(i); }
  /// Child i as an M; TypeError naming its class if it is none.
  template <class M>
  M& at(size_t i) const {
    M* m = child_at(i).as<M>();
    ARETE_CHECK(m, TypeError(name(), "child " + std::to_string(i) + " is of another class")
                       .got(child_at(i).name()));
    return *m;
  }
  detail::ChildIterator begin() const { return {this, 0, &get}; }
  detail::ChildIterator end() const { return {this, size(), &get}; }

 private:
  static Module& get(const Module& m, size_t i) {
    return static_cast<const ModuleList&>(m).child_at(i);
  }
};

/// Calls its children one after the other. Made of modules and of functions of a tensor:
///
///     nn::Sequential(nn::Linear(784, 256), nn::ReLU(), nn::Linear(256, 10))
///     nn::Sequential(conv, [](const Tensor& x) { return x.flatten(1); }, head)
class Sequential : public ModuleList {
 public:
  Sequential() = default;
  template <class First, class... Rest>
  requires(sizeof...(Rest) > 0 ||
           !std::is_base_of_v<
               Sequential, std::remove_cvref_t<First>>) explicit Sequential(const First& first,
                                                                            const Rest&... rest) {
    append(first);
    (append(rest), ...);
  }
  /// Adds a module or a function at the end.
  template <class M>
  Sequential& append(const M& module) {
    return add(std::to_string(size()), module);
  }
  template <class M>
  Sequential& push_back(const M& module) {
    return append(module);
  }
  /// The same under a name: Sequential().add("conv", nn::Conv2d(1, 8, 3)).add("relu", nn::ReLU()).
  template <class M>
  Sequential& add(std::string_view name, const M& module) {
    if constexpr (std::is_base_of_v<Module, M>)
      child(name, module);
    else
      child(name, Lambda(module));
    return *this;
  }
  Tensor forward(const Tensor& input) override;
};

/// Children by name, in order of insertion.
class ModuleDict : public Module {
 public:
  ModuleDict() = default;
  /// Adds or replaces; returns the dictionary.
  template <class M>
  ModuleDict& insert(std::string_view name, const M& module) {
    child(name, module);
    return *this;
  }
  size_t size() const { return num_children(); }
  bool contains(std::string_view name) const;
  /// ValueError naming the keys if there is none.
  Module& operator[](std::string_view name) const;
  std::vector<std::string> keys() const;
};

}  // namespace arete::nn
