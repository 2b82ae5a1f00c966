#include "arete/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/window_util.h"

namespace arete::nn {

struct Module::Body {
  struct BufferEntry {
    std::string name;
    Tensor value;
    bool persistent;
  };
  struct Child {
    std::string name;
    std::shared_ptr<Module> module;
    Copier copier;
  };
  bool training = true;
  uint64_t next_hook = 1;
  std::vector<StateDict::Entry> parameters;
  std::vector<BufferEntry> buffers;
  std::vector<Child> children;
  std::vector<std::pair<uint64_t, PreHook>> pre_hooks;
  std::vector<std::pair<uint64_t, Hook>> hooks;

  bool has(std::string_view name) const {
    const auto named = [&](const auto& e) { return e.first == name; };
    return std::any_of(parameters.begin(), parameters.end(), named) ||
           std::any_of(buffers.begin(), buffers.end(),
                       [&](const BufferEntry& e) { return e.name == name; }) ||
           std::any_of(children.begin(), children.end(),
                       [&](const Child& e) { return e.name == name; });
  }
};

// ---- deep copies

struct detail::CloneScope::State {
  State* outer = nullptr;  // scopes nest when a copy constructor clones
  bool active = true;
  std::unordered_map<const void*, std::shared_ptr<void>> bodies;
  std::unordered_map<const TensorImpl*, Tensor> tensors;
  struct Reference {
    std::string name;
    const TensorImpl* impl;
    int64_t count;
  };
  std::vector<Reference> references;  // to the original's tensors, before the copy
};

struct ModuleAccess {
  using Body = Module::Body;
  using State = detail::CloneScope::State;
  static thread_local State* cloning;

  static Body& body(const Module& m) { return *m.body_; }

  static Tensor cloned(const Tensor& t) {
    if (!cloning || !t.defined()) return t;
    if (const auto known = cloning->tensors.find(t.impl()); known != cloning->tensors.end())
      return known->second;
    State* const state = std::exchange(cloning, nullptr);
    const NoGradGuard no_grad;
    Tensor copy = t.detach().clone();
    if (t.requires_grad()) copy.requires_grad_();
    cloning = state;
    state->tensors.emplace(t.impl(), copy);
    state->tensors.emplace(copy.impl(), copy);
    return copy;
  }

  static std::shared_ptr<Body> cloned(const std::shared_ptr<Body>& body) {
    if (!cloning) return body;
    if (const auto known = cloning->bodies.find(body.get()); known != cloning->bodies.end())
      return std::static_pointer_cast<Body>(known->second);
    auto copy = std::make_shared<Body>();
    cloning->bodies.emplace(body.get(), copy);
    cloning->bodies.emplace(copy.get(), copy);
    copy->training = body->training;
    copy->next_hook = body->next_hook;
    copy->pre_hooks = body->pre_hooks;
    copy->hooks = body->hooks;
    for (const auto& [name, value] : body->parameters)
      copy->parameters.emplace_back(name, cloned(value));
    for (const auto& b : body->buffers)
      copy->buffers.push_back({b.name, cloned(b.value), b.persistent});
    for (const auto& c : body->children)
      copy->children.push_back({c.name, std::shared_ptr<Module>(c.copier(*c.module)), c.copier});
    return copy;
  }

  // Calls f(prefix, module, body) for each body once, parents first. Prefixes end with a dot.
  template <class F>
  static void walk(const Module& root, F&& f, bool recurse = true) {
    std::unordered_set<const Body*> seen;
    walk_below(root, "", seen, recurse, f);
  }

 private:
  template <class F>
  static void walk_below(const Module& m, const std::string& prefix,
                         std::unordered_set<const Body*>& seen, bool recurse, F& f) {
    if (!seen.insert(m.body_.get()).second) return;
    f(prefix, m, *m.body_);
    if (!recurse) return;
    for (const auto& c : m.body_->children)
      walk_below(*c.module, prefix + c.name + ".", seen, recurse, f);
  }
};
thread_local ModuleAccess::State* ModuleAccess::cloning = nullptr;

namespace detail {

CloneScope::CloneScope(const Module& original) : state_(std::make_unique<State>()) {
  ModuleAccess::walk(original, [&](const std::string& prefix, const Module&, auto& body) {
    const auto note = [&](const std::string& name, const Tensor& t) {
      if (t.defined())
        state_->references.push_back({prefix + name, t.impl(), t.impl()->use_count()});
    };
    for (const auto& [name, value] : body.parameters) note(name, value);
    for (const auto& b : body.buffers) note(b.name, b.value);
  });
  state_->outer = std::exchange(ModuleAccess::cloning, state_.get());
}

CloneScope::~CloneScope() {
  if (state_->active) ModuleAccess::cloning = state_->outer;
}

void CloneScope::finish() {
  ModuleAccess::cloning = state_->outer;
  state_->active = false;
  for (const State::Reference& r : state_->references)
    ARETE_CHECK(
        r.impl->use_count() <= r.count,
        ValueError("clone", "a member of the copy still refers to the original's '" + r.name + "'")
            .hint("declare the member that holds it as nn::Parameter or nn::Buffer, not "
                  "as Tensor"));
}

}  // namespace detail

Parameter::Parameter(const Parameter& other) : Tensor(ModuleAccess::cloned(Tensor(other))) {}

// ---- the module itself

Module::Module() : body_(std::make_shared<Body>()) {}
Module::Module(const Module& other) : body_(ModuleAccess::cloned(other.body_)) {}
Module::~Module() = default;

Tensor Module::forward(const Tensor&) {
  throw NotImplementedError(name(), "Module [" + name() +
                                        "] is missing the required \"forward\" "
                                        "function for one input")
      .hint(
          "declare `Tensor forward(const Tensor& x) override`; a module with several inputs is "
          "called through its own forward(...)");
}

Tensor Module::operator()(const Tensor& input) const {
  // A handle's constness says nothing about the body.
  Module& self = const_cast<Module&>(*this);
  if (body_->pre_hooks.empty() && body_->hooks.empty()) return self.forward(input);
  const std::shared_ptr<Body> body = body_;
  const auto pre_hooks = body->pre_hooks;  // hooks may remove themselves
  Tensor x = input;
  for (const auto& [id, hook] : pre_hooks)
    if (Tensor replaced = hook(self, x); replaced.defined()) x = replaced;
  Tensor y = self.forward(x);
  const auto hooks = body->hooks;
  for (const auto& [id, hook] : hooks)
    if (Tensor replaced = hook(self, x, y); replaced.defined()) y = replaced;
  return y;
}

std::string Module::name() const {
  const char* mangled = typeid(*this).name();
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string full = status == 0 ? text.get() : mangled;
  const size_t end = std::min(full.find('<'), full.size());
  const size_t colon = full.rfind("::", end);
  return colon == std::string::npos ? full : full.substr(colon + 2);
}

std::string Module::to_string() const {
  const std::string extra = extra_repr();
  if (body_->children.empty()) return name() + "(" + extra + ")";
  std::string text = name() + "(\n";
  if (!extra.empty()) text += "  " + extra + "\n";
  for (const auto& c : body_->children) {
    text += "  (" + c.name + "): ";
    for (char ch : c.module->to_string()) {
      text += ch;
      if (ch == '\n') text += "  ";
    }
    text += '\n';
  }
  return text + ")";
}

// ---- contents

StateDict Module::named_parameters(bool recurse) const {
  StateDict result;
  std::unordered_set<const TensorImpl*> seen;
  ModuleAccess::walk(
      *this,
      [&](const std::string& prefix, const Module&, const Body& b) {
        for (const auto& [name, value] : b.parameters)
          if (value.defined() && seen.insert(value.impl()).second)
            result.insert(prefix + name, value);
      },
      recurse);
  return result;
}

StateDict Module::named_buffers(bool recurse) const {
  StateDict result;
  std::unordered_set<const TensorImpl*> seen;
  ModuleAccess::walk(
      *this,
      [&](const std::string& prefix, const Module&, const Body& b) {
        for (const auto& e : b.buffers)
          if (e.value.defined() && seen.insert(e.value.impl()).second)
            result.insert(prefix + e.name, e.value);
      },
      recurse);
  return result;
}

namespace {
std::vector<Tensor> values_of(const StateDict& named) {
  std::vector<Tensor> values;
  values.reserve(named.size());
  for (const auto& [name, value] : named) values.push_back(value);
  return values;
}
}  // namespace

std::vector<Tensor> Module::parameters(bool recurse) const {
  return values_of(named_parameters(recurse));
}
std::vector<Tensor> Module::buffers(bool recurse) const {
  return values_of(named_buffers(recurse));
}

std::vector<NamedModule> Module::named_children() const {
  std::vector<NamedModule> result;
  for (const auto& c : body_->children) result.push_back({c.name, c.module.get()});
  return result;
}

std::vector<Module*> Module::children() const {
  std::vector<Module*> result;
  for (const auto& c : body_->children) result.push_back(c.module.get());
  return result;
}

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> result;
  ModuleAccess::walk(*this, [&](const std::string& prefix, const Module& m, const Body&) {
    result.push_back(
        {prefix.substr(0, prefix.empty() ? 0 : prefix.size() - 1), const_cast<Module*>(&m)});
  });
  return result;
}

std::vector<Module*> Module::modules() {
  std::vector<Module*> result;
  for (const NamedModule& m : named_modules()) result.push_back(m.module);
  return result;
}

Module& Module::get_submodule(std::string_view path) {
  Module* at = this;
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view step = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), step.size() + 1));
    const auto& children = at->body_->children;
    const auto found = std::find_if(children.begin(), children.end(),
                                    [&](const auto& c) { return c.name == step; });
    if (found == children.end()) {
      std::string there;
      for (const auto& c : children) there += (there.empty() ? "" : ", ") + c.name;
      throw ValueError("get_submodule", at->name() + " has no child '" + std::string(step) + "'")
          .argument(path)
          .expected(there.empty() ? "a module with children" : "one of: " + there);
    }
    at = found->module.get();
  }
  return *at;
}

namespace {
Tensor find_named(const StateDict& all, std::string_view name, const char* op) {
  const Tensor* found = all.find(name);
  if (found) return *found;
  std::string there;
  for (const std::string& key : all.keys()) there += (there.empty() ? "" : ", ") + key;
  throw ValueError(op, "there is no such entry").got(name).expected("one of: " + there);
}
}  // namespace

Tensor Module::get_parameter(std::string_view path) const {
  return find_named(named_parameters(), path, "get_parameter");
}
Tensor Module::get_buffer(std::string_view path) const {
  return find_named(named_buffers(), path, "get_buffer");
}

int64_t Module::num_parameters(bool only_trainable) const {
  int64_t n = 0;
  for (const Tensor& p : parameters())
    if (!only_trainable || p.requires_grad()) n += p.numel();
  return n;
}

// ---- building

namespace {
void check_name(std::string_view name, bool used, const char* op) {
  ARETE_CHECK(!name.empty() && name.find('.') == std::string_view::npos,
              ValueError(op, "a name must not be empty nor contain a dot").got(name));
  ARETE_CHECK(!used, ValueError(op, "attribute '" + std::string(name) + "' already exists"));
}
}  // namespace

Parameter Module::register_parameter(std::string_view name, const Tensor& value,
                                     bool requires_grad) {
  check_name(name, body_->has(name), "register_parameter");
  if (value.defined()) {
    ARETE_CHECK(value.is_leaf(),
                AutogradError("register_parameter", "Cannot assign non-leaf Tensor to parameter '" +
                                                        std::string(name) + "'")
                    .hint("parameters are where gradients end: detach() the value, or compute it "
                          "in forward()"));
    Tensor(value).requires_grad_(requires_grad);
  }
  body_->parameters.emplace_back(name, value);
  return Parameter(value);
}

Buffer Module::register_buffer(std::string_view name, const Tensor& value, bool persistent) {
  check_name(name, body_->has(name), "register_buffer");
  body_->buffers.push_back({std::string(name), value, persistent});
  return Buffer(value);
}

void Module::add_child(std::string_view name, const Module& module, Copier copier) {
  auto& children = body_->children;
  const auto old =
      std::find_if(children.begin(), children.end(), [&](const auto& c) { return c.name == name; });
  check_name(name, old == children.end() && body_->has(name), "register_module");
  ModuleAccess::walk(module, [&](const std::string&, const Module&, const Body& b) {
    ARETE_CHECK(&b != body_.get(),
                ValueError("register_module", "a module cannot contain itself").argument(name));
  });
  Body::Child child{std::string(name), std::shared_ptr<Module>(copier(module)), copier};
  if (old == children.end())
    children.push_back(std::move(child));
  else
    *old = std::move(child);
}

Module& Module::child_at(size_t position) const {
  ARETE_CHECK(position < body_->children.size(),
              IndexError(name(), "index " + std::to_string(position) + " is out of range")
                  .expected("less than " + std::to_string(body_->children.size())));
  return *body_->children[position].module;
}
size_t Module::num_children() const { return body_->children.size(); }

// ---- state

bool Module::is_training() const noexcept { return body_->training; }

Module& Module::train(bool on) {
  ModuleAccess::walk(*this, [&](const std::string&, const Module&, Body& b) { b.training = on; });
  return *this;
}

Module& Module::requires_grad_(bool on) {
  for (Tensor& p : parameters()) p.requires_grad_(on);
  return *this;
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) {
    if (!p.grad().defined()) continue;
    if (set_to_none) {
      p.set_grad(Tensor());
    } else {
      const NoGradGuard no_grad;
      p.set_grad(zeros_like(p.grad()));
    }
  }
}

Module& Module::convert(std::optional<Device> device, std::optional<DType> dtype,
                        std::optional<MemoryFormat> format) {
  const NoGradGuard no_grad;
  ARETE_CHECK(
      !dtype || is_floating(*dtype),
      TypeError("to", "nn.Module.to only accepts floating point dtypes").got(name_of(*dtype)));
  std::vector<Tensor> all = parameters();
  for (const Tensor& b : buffers()) all.push_back(b);
  const auto converted = [&](const Tensor& t) {
    const Tensor r = t.detach().to(device.value_or(t.device()),
                                   dtype && t.is_floating_point() ? *dtype : t.dtype());
    if (!format || (t.dim() != 4 && t.dim() != 5)) return r;
    // Weights of size 1 x 1 lie in both orders: their strides say which one is meant.
    return *format == MemoryFormat::channels_last && !ops::prefers_channels_last(r)
               ? r.clone(*format)
               : r.contiguous(*format);
  };
  // All are converted before any changes, so that an error leaves the network as it was.
  std::vector<std::pair<Tensor, Tensor>> fresh;
  for (const Tensor& t : all) {
    const Tensor grad = t.grad();
    fresh.emplace_back(converted(t), grad.defined() ? converted(grad) : grad);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    TensorImpl& impl = *all[i].impl();
    const Tensor& value = fresh[i].first;
    if (value.storage() == impl.storage && value.dtype() == impl.dtype) continue;
    impl.storage = value.storage();
    impl.layout = value.layout();
    impl.dtype = value.dtype();
    if (impl.autograd && impl.autograd->accumulator) {
      AccumulateGrad& sink = *impl.autograd->accumulator;
      sink.grad = fresh[i].second;
      if (!sink.outputs.empty())
        sink.outputs[0] = {Shape(value.sizes()), value.dtype(), value.device()};
    }
  }
  return *this;
}

Module& Module::to(Device device) { return convert(device, {}); }
Module& Module::to(DType dtype) { return convert({}, dtype); }
Module& Module::to(Device device, DType dtype) { return convert(device, dtype); }
Module& Module::to(MemoryFormat format) { return convert({}, {}, format); }

Module& Module::apply(const std::function<void(Module&)>& f) {
  std::unordered_set<const Body*> seen;
  const std::function<void(Module&)> visit = [&](Module& m) {
    if (!seen.insert(m.body_.get()).second) return;
    for (Module* c : m.children()) visit(*c);
    f(m);
  };
  visit(*this);
  return *this;
}

// ---- hooks

uint64_t Module::register_forward_pre_hook(PreHook hook) {
  body_->pre_hooks.emplace_back(body_->next_hook, std::move(hook));
  return body_->next_hook++;
}

uint64_t Module::register_forward_hook(Hook hook) {
  body_->hooks.emplace_back(body_->next_hook, std::move(hook));
  return body_->next_hook++;
}

void Module::remove_hook(uint64_t id) {
  const auto is = [id](const auto& h) { return h.first == id; };
  std::erase_if(body_->pre_hooks, is);
  std::erase_if(body_->hooks, is);
}

bool Module::has_hooks() const noexcept {
  return !body_->pre_hooks.empty() || !body_->hooks.empty();
}

// ---- saving and loading

namespace {
// Unlike named_parameters, names of shared tensors all appear, as in PyTorch.
template <class F>
void for_each_state(const Module& root, const std::string& prefix, F&& f) {
  const auto& body = ModuleAccess::body(root);
  for (const auto& [name, value] : body.parameters)
    if (value.defined()) f(prefix + name, value);
  for (const auto& b : body.buffers)
    if (b.persistent && b.value.defined()) f(prefix + b.name, b.value);
  for (const auto& c : body.children) for_each_state(*c.module, prefix + c.name + ".", f);
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& n : names) text += (text.empty() ? "\"" : ", \"") + n + "\"";
  return text;
}
}  // namespace

StateDict Module::state_dict() const {
  StateDict result;
  for_each_state(*this, "", [&](const std::string& name, const Tensor& value) {
    result.insert(name, value.detach());
  });
  return result;
}

LoadResult Module::load_state_dict(const StateDict& state, bool strict) {
  LoadResult result;
  std::string problems;
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::unordered_set<std::string> known;
  for_each_state(*this, "", [&](const std::string& key, const Tensor& value) {
    known.insert(key);
    const Tensor* found = state.find(key);
    if (!found || !found->defined()) {
      result.missing_keys.push_back(key);
    } else if (!std::ranges::equal(found->sizes(), value.sizes())) {
      problems += " size mismatch for " + key + ": copying a param with shape " +
                  arete::to_string(found->sizes()) +
                  " from checkpoint, the shape in current model is " +
                  arete::to_string(value.sizes()) + ".";
    } else {
      copies.emplace_back(value, *found);
    }
  });
  for (const auto& [key, value] : state)
    if (!known.contains(key)) result.unexpected_keys.push_back(key);
  if (strict) {
    if (!result.unexpected_keys.empty())
      problems = " Unexpected key(s) in state_dict: " + quoted_list(result.unexpected_keys) + "." +
                 problems;
    if (!result.missing_keys.empty())
      problems =
          " Missing key(s) in state_dict: " + quoted_list(result.missing_keys) + "." + problems;
  }
  ARETE_CHECK(problems.empty(),
              ValueError("load_state_dict",
                         "Error(s) in loading state_dict for " + name() + ":" + problems));
  const NoGradGuard no_grad;
  for (auto& [target, source] : copies) target.copy_(source.detach());
  return result;
}

}  // namespace arete::nn
