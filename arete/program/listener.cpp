// Writes calls down while they are made.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "arete/autograd/engine.h"
#include "arete/autograd/function.h"
#include "arete/compile/compile.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using Kind = ops::Arg::Kind;

constexpr int constant_value(size_t k) { return -int(k) - 2; }

std::string at(const std::string& place) { return place.empty() ? "" : " (" + place + ")"; }

// Whether a composition looks at how its tensors lie in memory, or at their dtypes, so that what it
// calls is for those of the examples alone: Note [Copies that are none].
bool looks_at_layout(const ops::OpRecord& op) {
  static const ops::OpRecord* const all[] = {ops::find_record("contiguous"), ops::find_record("to"),
                                             ops::find_record("reshape")};
  return std::ranges::find(all, &op) != std::end(all);
}

// Another tensor over the memory of `t`, for its values alone.
Tensor bytes_of(const Tensor& t) {
  const StoragePtr& memory = t.storage();
  return Tensor(IntrusivePtr<TensorImpl>(
      new TensorImpl(memory, Layout(Shape{int64_t(memory->bytes())}), kUInt8)));
}

// Copies of what is written meanwhile, written back in the end.
class Snapshots {
 public:
  void take(const Tensor& t) {
    if (t.is_meta() || !taken_.insert(t.storage().get()).second) return;
    const ModesGuard quiet;
    modes().word = 0;
    modes().grad_enabled = false;
    const Tensor bytes = bytes_of(t);
    copies_.push_back({bytes, bytes.clone(), t.storage()->writes()});
  }
  ~Snapshots() {
    const ModesGuard quiet;
    modes().word = 0;
    modes().grad_enabled = false;
    for (Copy& c : copies_) try {
        if (c.memory.storage()->writes() != c.writes) c.memory.copy_(c.before);
      } catch (const Error&) {
        // A device that fails says so again at the next call.
      }
  }
  Snapshots() = default;
  Snapshots(const Snapshots&) = delete;
  Snapshots& operator=(const Snapshots&) = delete;

 private:
  struct Copy {
    Tensor memory, before;
    uint64_t writes;
  };
  std::vector<Copy> copies_;
  std::unordered_set<const Storage*> taken_;
};

class Listener final : public tracing::ThreadListener {
 public:
  Listener(const std::vector<Tensor>& inputs, const RecordOptions& options);

  uint64_t begin_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                      bool in_place) noexcept override {
    guarded([&] { begin(op, args, in_place ? Form::in_place : Form::call, {}); });
    return 0;
  }
  uint64_t begin_call_into(const ops::OpRecord& op, tracing::Items<ops::Arg> args,
                           tracing::Items<Tensor* const> outs) noexcept override {
    guarded([&] { begin(op, args, Form::out, outs); });
    return 0;
  }
  void end_call(uint64_t, const ops::OpRecord& op, tracing::Items<ops::Arg>,
                tracing::Items<Tensor> results) noexcept override {
    guarded([&] {
      if (opaque_ == 0 && !frames_.empty() && frames_.back() == Frame::composed)
        for (size_t i = 0; i < results.size; ++i) value_of(results.data[i]);
      if (leave() && pending_) complete(op, results);
    });
  }
  void fail_call() noexcept override {
    guarded([&] { leave(); });
  }
  void read(const Tensor& t, bool address) override;
  void hooked(const Tensor& t) override;
  void detached(const Tensor& from, const Tensor& to) noexcept override {
    guarded([&] { note_detached(from, to); });
  }
  bool writes_down() const noexcept override { return !is_busy_ && opaque_ <= 1; }

  Body finish(const std::vector<Tensor>& outputs);
  /// Whether calls are written down, and none is under way.
  bool is_open() const { return !is_busy_ && opaque_ == 0; }
  std::vector<Tensor> mark(Form form, const std::vector<Tensor>& args);

 private:
  // What a value was when it was last seen.
  struct Known {
    Tensor tensor;
    int value;
    StoragePtr storage;
    Layout layout;
  };
  enum class Frame : uint8_t {
    opaque,      // what it calls is not written down
    function,    // in functions_
    checkpoint,  // counted by checkpoints_
    composed,    // in its place what it calls is written down
  };

  template <class F>
  void guarded(F&& f) noexcept {
    if (is_busy_) return;
    is_busy_ = true;
    try {
      f();
    } catch (const std::exception& e) {
      if (failure_.empty()) failure_ = e.what() + at(compile::current_place());
    }
    is_busy_ = false;
  }

  void begin(const ops::OpRecord& op, tracing::Items<ops::Arg> args, Form form,
             tracing::Items<Tensor* const> outs);
  // Whether the call that ends is one of the function's own.
  bool leave();
  void note_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args, Form form,
                 tracing::Items<Tensor* const> outs);
  void complete(const ops::OpRecord& op, tracing::Items<Tensor> results);
  Argument argument(const ops::OpRecord& op, const ops::Arg& a);

  int value_of(const Tensor& t);
  int alias_of(const Tensor& t, const std::vector<const TensorImpl*>& others);
  void note_detached(const Tensor& from, const Tensor& to);
  void forget(const Storage& memory);
  // What the host may have written since an operator made it, as a constant that is copied.
  void take_from_host(const Tensor& t);
  int add_constant(const Tensor& t, State state);
  int add_result(const Tensor& t, RecordedCall& call);
  void know(const Tensor& t, int value);
  void set_modes(RecordedCall& call) const;
  bool depends(const Tensor& t) const { return depends_.contains(t.storage().get()); }
  // The results of marks, which are any of what their functions give.
  std::vector<Tensor> joined(Form form, const std::vector<Tensor>& some,
                             const std::vector<Tensor>& others);

  const RecordOptions& options_;
  Body body_;
  std::unordered_map<const TensorImpl*, Known> known_;
  // Values over each memory, the last one last.
  std::unordered_map<const Storage*, std::vector<const TensorImpl*>> over_;
  // Memory whose address the host has, with its bytes as they were when a call used it last.
  std::unordered_map<const Storage*, Tensor> exposed_;
  // Memory that holds what depends on the inputs, or on chance.
  std::unordered_set<const Storage*> depends_;
  std::unordered_map<const Storage*, std::vector<int>> constants_over_;
  std::vector<Tensor> kept_;
  std::vector<Frame> frames_;
  int opaque_ = 0;
  std::vector<std::string> functions_;
  int checkpoints_ = 0, composed_ = 0;
  std::optional<RecordedCall> pending_;
  bool pending_depends_ = false;
  std::vector<std::pair<StoragePtr, uint64_t>> writes_before_;  // of what the arguments lie in
  std::vector<std::pair<size_t, Tensor>> detached_;             // by calls
  int n_results_ = 0;
  Scopes scopes_;
  // Of each open branch the results of its first part, of each loop what it carries.
  std::vector<std::vector<Tensor>> open_;
  std::vector<int> loops_;  // the first value that each carries
  bool is_busy_ = false;
  std::string failure_, looked_at_;
  std::unordered_set<std::string> taken_;  // names
  Snapshots snapshots_;
};

Listener::Listener(const std::vector<Tensor>& inputs, const RecordOptions& options)
    : options_(options) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorType type{inputs[i].dtype(), {}};
    for (const int64_t n : inputs[i].sizes()) type.sizes.emplace_back(n);
    body_.inputs.push_back(
        {i < options.input_names.size() ? options.input_names[i] : "input_" + std::to_string(i),
         std::move(type)});
    depends_.insert(inputs[i].storage().get());
    know(inputs[i], int(i));
  }
  for (const Input& i : body_.inputs) taken_.insert(i.name);
  for (const State& s : options.state) taken_.insert(s.name);
  is_busy_ = true;
  for (const State& s : options.state) {
    if (!s.tensor.defined()) continue;
    if (const auto found = known_.find(s.tensor.impl()); found != known_.end())
      body_.more_names.emplace_back(s.name, found->second.value);
    else
      add_constant(s.tensor, s);
  }
  is_busy_ = false;
  const Device cpu;
  body_.device = !inputs.empty()            ? inputs[0].device()
                 : !body_.constants.empty() ? body_.constants[0].tensor.device()
                                            : cpu;
}

void Listener::know(const Tensor& t, int value) {
  known_.insert_or_assign(t.impl(), Known{t, value, t.storage(), t.layout()});
  over_[t.storage().get()].push_back(t.impl());
}

// What lies in the memory is none of the values that lay there.
void Listener::forget(const Storage& memory) {
  const auto found = over_.find(&memory);
  if (found == over_.end()) return;
  for (const TensorImpl* impl : found->second)
    if (const auto k = known_.find(impl); k != known_.end()) {
      kept_.push_back(k->second.tensor);  // or its address may become another tensor's
      known_.erase(k);
    }
  over_.erase(found);
}

void Listener::take_from_host(const Tensor& t) {
  Tensor& before = exposed_.at(t.storage().get());
  const ModesGuard quiet;
  modes().word = 0;
  modes().grad_enabled = false;
  const Tensor now = bytes_of(t);
  if (before.defined() && equal(before, now)) return;
  before = now.clone();
  forget(*t.storage());
  // Calls may write there later, and the next run is to find what this one found.
  const int64_t n = int64_t(t.storage()->bytes()) / t.element_size();
  const Tensor all(
      IntrusivePtr<TensorImpl>(new TensorImpl(t.storage(), Layout(Shape{n}), t.dtype())));
  RecordedCall call;
  call.op = ops::find_record("to_copy");
  set_modes(call);
  call.args.push_back(
      {.kind = Kind::tensor, .values = {add_constant(all.clone(), {.kind = StateKind::constant})}});
  const auto add = [&](Kind kind, auto value) {
    call.args.push_back({.kind = kind, .value = ops::OwnedArg(value)});
  };
  add(Kind::dtype, t.dtype());
  add(Kind::device, t.device());
  add(Kind::integer, int64_t(MemoryFormat::preserve));
  add(Kind::boolean, false);
  add_result(all, call);
  body_.calls.push_back(std::move(call));
}

int Listener::add_constant(const Tensor& t, State state) {
  const size_t k = body_.constants.size();
  for (size_t n = k; state.name.empty(); ++n)
    if (std::string name = "constant_" + std::to_string(n); !taken_.contains(name))
      state.name = std::move(name);
  state.tensor = t;
  body_.constants.push_back(std::move(state));
  know(t, constant_value(k));
  constants_over_[t.storage().get()].push_back(int(k));
  // Buffers may be written inside of an operator. Weights are not, but by calls in place.
  if (!t.requires_grad() && t.numel() <= 1 << 20) snapshots_.take(t);
  return constant_value(k);
}

int Listener::add_result(const Tensor& t, RecordedCall& call) {
  TensorType type{t.dtype(), {}};
  for (const int64_t n : t.sizes()) type.sizes.emplace_back(n);
  call.results.push_back(std::move(type));
  const int value = int(body_.inputs.size()) + n_results_++;
  know(t, value);
  return value;
}

void Listener::set_modes(RecordedCall& call) const {
  call.place = compile::current_place();
  if (!functions_.empty())
    call.function = functions_.front();
  else
    call.no_grad = !is_grad_enabled() && checkpoints_ == 0;
}

void Listener::note_detached(const Tensor& from, const Tensor& to) {
  // A tensor that no call has used, without history: a constant, if one will.
  if (opaque_ > 0 || !is_differentiable(from.dtype()) ||
      (!over_.contains(from.storage().get()) && !from.requires_grad()))
    return;
  RecordedCall call;
  call.form = Form::detach;
  set_modes(call);
  call.args.push_back({.kind = Kind::tensor, .values = {value_of(from)}});
  add_result(to, call);
  detached_.emplace_back(body_.calls.size(), to);
  body_.calls.push_back(std::move(call));
}

// The value behind a tensor that no call gave, over memory that is known: a handle that C++ made.
int Listener::alias_of(const Tensor& t, const std::vector<const TensorImpl*>& others) {
  const Known* same = nullptr;
  const Known* root = nullptr;
  for (const TensorImpl* impl : others) {
    const Known& k = known_.at(impl);
    if (k.tensor.dtype() != t.dtype() || k.storage != t.storage() || !scopes_.holds(k.value))
      continue;
    root = &k;
    if (!(k.layout == t.layout())) continue;
    same = &k;
    if (k.tensor.requires_grad() == t.requires_grad()) {
      know(t, k.value);
      return k.value;
    }
  }
  ARETE_CHECK(root, NotImplementedError("program",
                                        "a tensor shows memory of another one in "
                                        "another dtype, by no operator")
                        .got(ops::describe(t)));
  RecordedCall call;
  set_modes(call);
  Argument self{.kind = Kind::tensor, .values = {(same ? same : root)->value}};
  call.args.push_back(std::move(self));
  if (same) {
    call.form = Form::detach;
    call.requires_grad = t.requires_grad();
  } else {
    const auto list = [&](IntList l) {
      Argument a{.kind = Kind::ints};
      a.value = ops::OwnedArg(std::vector<int64_t>(l.begin(), l.end()));
      call.args.push_back(std::move(a));
    };
    call.op = ops::find_record("as_strided");
    list(t.sizes());
    list(t.strides());
    Argument offset{.kind = Kind::integer};
    offset.value = ops::OwnedArg(t.storage_offset());
    call.args.push_back(std::move(offset));
  }
  const int value = add_result(t, call);
  body_.calls.push_back(std::move(call));
  return value;
}

int Listener::value_of(const Tensor& t) {
  if (!t.defined()) return kUndefined;
  if (exposed_.contains(t.storage().get()) && !depends(t)) take_from_host(t);
  if (const auto found = known_.find(t.impl()); found != known_.end()) {
    const Known k = found->second;
    ARETE_CHECK(scopes_.holds(k.value),
                NotImplementedError("program",
                                    "a tensor that a function of cond() or while_loop() made is "
                                    "used outside of it")
                    .got(ops::describe(t))
                    .hint("return it"));
    ARETE_CHECK(k.storage == t.storage(),
                NotImplementedError("program",
                                    "a tensor was given other memory by no operator (.data, set_)")
                    .got(ops::describe(t)));
    if (k.layout == t.layout()) return k.value;
    // Another shape, in place.
    std::vector<const TensorImpl*> others;
    for (const TensorImpl* impl : over_[t.storage().get()])
      if (impl != t.impl()) others.push_back(impl);
    if (others.empty()) {
      // A handle that shows what it showed.
      const Tensor before(t.impl()->alias(k.layout, t.dtype()));
      know(before, k.value);
      others.push_back(before.impl());
    }
    return alias_of(t, others);
  }
  if (const auto found = over_.find(t.storage().get()); found != over_.end())
    return alias_of(t, std::vector(found->second));
  // Within an operator nothing comes from the function.
  ARETE_CHECK(composed_ == 0,
              NotImplementedError("program", "an operator is not composed of others alone")
                  .got(ops::describe(t)));
  return add_constant(t, {.name = "", .tensor = t, .kind = StateKind::constant});
}

Argument Listener::argument(const ops::OpRecord& op, const ops::Arg& a) {
  Argument r{.kind = a.kind()};
  switch (a.kind()) {
    case Kind::tensor:
      r.values.push_back(value_of(a.tensor()));
      break;
    case Kind::tensors:
      for (const Tensor& t : a.tensors()) r.values.push_back(value_of(t));
      break;
    case Kind::none:
      break;
    case Kind::boolean:
      r.value = a.boolean();
      break;
    case Kind::integer:
      r.value = a.integer();
      break;
    case Kind::real:
      r.value = a.real();
      break;
    case Kind::scalar:
      r.value = a.scalar();
      break;
    case Kind::ints:
      r.value = std::vector<int64_t>(a.ints().begin(), a.ints().end());
      break;
    case Kind::reals:
      r.value = std::vector<double>(a.reals().begin(), a.reals().end());
      break;
    case Kind::string:
      r.value = std::string(a.string()).c_str();
      break;
    case Kind::dtype:
      r.value = a.dtype();
      break;
    case Kind::device:
      r.value = a.device();
      break;
    case Kind::generator:
      ARETE_CHECK(a.generator() == &default_generator(),
                  NotImplementedError(op.name, "a generator cannot be part of a program")
                      .hint("leave generator= out: the program then draws from the default one"));
      r.kind = Kind::none;
      break;
    case Kind::program: {
      const ops::AppliedProgram& p = a.program();
      ARETE_CHECK(
          takes_program(op) && p.program && !p.program->tables() && !p.program->params_in_memory(),
          NotImplementedError(op.name, "the kernel '" + op.name +
                                           "' cannot be part of a program: of kernels that "
                                           "users write, those that work element by "
                                           "element can"));
      r.program = p.program->shared_from_this();
      r.params.assign(p.params.begin(), p.params.end());
      break;
    }
  }
  return r;
}

void Listener::begin(const ops::OpRecord& op, tracing::Items<ops::Arg> args, Form form,
                     tracing::Items<Tensor* const> outs) {
  // At any depth: a constant that is about to be written.
  if (form == Form::in_place && args.size && args.data[0].kind() == Kind::tensor) {
    const Tensor& self = args.data[0].tensor();
    const Storage* const memory = self.storage().get();
    if (constants_over_.contains(memory) || (opaque_ == 0 && !over_.contains(memory)))
      snapshots_.take(self);
  }
  if (opaque_ == 0 && ops::is_function_record(op)) {
    if (!autograd::is_checkpoint(op.name)) {
      frames_.push_back(Frame::function);
      functions_.push_back(op.name);
    } else {
      frames_.push_back(Frame::checkpoint);
      ++checkpoints_;
    }
    return;
  }
  if (opaque_ == 0 && op.compose && !looks_at_layout(op) && form == Form::call && options_.whole &&
      !options_.whole->contains(op.full_name())) {
    for (size_t i = 0; i < args.size; ++i) argument(op, args.data[i]);  // constants among them
    frames_.push_back(Frame::composed);
    ++composed_;
    return;
  }
  frames_.push_back(Frame::opaque);
  if (opaque_++ == 0) note_call(op, args, form, outs);
}

void Listener::note_call(const ops::OpRecord& op, tracing::Items<ops::Arg> args, Form form,
                         tracing::Items<Tensor* const> outs) {
  pending_.reset();
  pending_depends_ = op.random;
  writes_before_.clear();
  RecordedCall call;
  call.form = form;
  call.op = &op;
  if (!takes_program(op))
    ARETE_CHECK(find_callable(op.full_name()) == &op,
                NotImplementedError(op.name, "the kernel '" + op.name +
                                                 "' cannot be part of a program: of kernels that "
                                                 "users write, those that work element by element "
                                                 "can"));
  const auto use = [&](const Tensor& t) {
    if (!t.defined()) return;
    pending_depends_ = pending_depends_ || depends(t);
    writes_before_.emplace_back(t.storage(), t.storage()->writes());
  };
  for (size_t i = 0; i < args.size; ++i) {
    const ops::Arg& a = args.data[i];
    call.args.push_back(argument(op, a));
    if (a.kind() == Kind::tensor) use(a.tensor());
    if (a.kind() == Kind::tensors)
      for (const Tensor& t : a.tensors()) use(t);
  }
  // Who calls in C++ may leave arguments out that have defaults.
  call.args.resize(std::max(call.args.size(), ops::schema_of(op).args.size()));
  for (size_t i = 0; i < outs.size; ++i) {
    if (!over_.contains(outs.data[i]->storage().get()) ||
        constants_over_.contains(outs.data[i]->storage().get()))
      snapshots_.take(*outs.data[i]);
    call.outs.push_back(value_of(*outs.data[i]));
    use(*outs.data[i]);
  }
  set_modes(call);
  if (op.compose && modes().word & Modes::kAutocast) {
    ops::AutocastState& s = ops::autocast_state();
    call.autocast.emplace();
    if (s.cpu.enabled) call.autocast->cpu = s.cpu.dtype;
    if (s.cuda.enabled) call.autocast->cuda = s.cuda.dtype;
  }
  pending_ = std::move(call);
}

bool Listener::leave() {
  if (frames_.empty()) return false;
  const Frame frame = frames_.back();
  frames_.pop_back();
  if (frame == Frame::opaque) return --opaque_ == 0;
  if (frame == Frame::function) functions_.pop_back();
  if (frame == Frame::checkpoint) --checkpoints_;
  if (frame == Frame::composed) --composed_;
  return false;
}

void Listener::complete(const ops::OpRecord& op, tracing::Items<Tensor> results) {
  RecordedCall call = std::move(*pending_);
  const auto depend = [&](const Tensor& t) {
    if (pending_depends_ && t.defined()) depends_.insert(t.storage().get());
  };
  for (const auto& [memory, writes] : writes_before_) {
    if (memory->writes() == writes) continue;
    call.writes = true;
    if (pending_depends_) depends_.insert(memory.get());
    const auto found = constants_over_.find(memory.get());
    if (found == constants_over_.end()) continue;
    const int k = found->second[0];
    ARETE_CHECK(found->second.size() == 1,
                NotImplementedError(op.name,
                                    "a constant of the program that shares its memory "
                                    "with another one was written")
                    .got("'" + body_.constants[size_t(k)].name + "'"));
    if (std::ranges::find(body_.written, k) == body_.written.end()) body_.written.push_back(k);
  }
  writes_before_.clear();
  if (call.form == Form::call) {
    if (takes_program(op)) {
      bool is_new = results.size == call.args[0].program->outputs().size();
      for (size_t i = 0; i < results.size; ++i)
        is_new = is_new && !over_.contains(results.data[i].storage().get());
      ARETE_CHECK(is_new, NotImplementedError(op.name, "'" + op.name +
                                                           "' works on lists of tensors or writes "
                                                           "into them, and cannot be part of a "
                                                           "program")
                              .hint("optimizers and foreach operators stay outside"));
    }
    for (size_t i = 0; i < results.size; ++i) {
      add_result(results.data[i], call);
      depend(results.data[i]);
    }
  } else {
    // What was written is what it was, but for its shape (out=).
    for (size_t i = 0; i < results.size; ++i) {
      depend(results.data[i]);
      if (call.form != Form::out) continue;
      Known& k = known_.at(results.data[i].impl());
      if (k.storage != results.data[i].storage())
        std::erase(over_[k.storage.get()], results.data[i].impl());
      k.storage = results.data[i].storage();
      k.layout = results.data[i].layout();
      over_[k.storage.get()].push_back(results.data[i].impl());
    }
  }
  body_.calls.push_back(std::move(call));
}

void Listener::read(const Tensor& t, bool address) {
  if (is_busy_ || opaque_ > 0 || !t.defined()) return;
  if (!depends(t)) {
    // A constant's memory is that of the tensor it was.
    const Storage* const memory = t.storage().get();
    if (address && over_.contains(memory) && !constants_over_.contains(memory))
      exposed_.try_emplace(memory);
    return;
  }
  const std::string place = compile::current_place();
  ValueError error("program",
                   "a value that depends on the inputs was looked at on the host while a program "
                   "was recorded" +
                       at(place));
  error.got(ops::describe(t))
      .hint(
          "what follows would depend on it, and a program is a list of calls: choose with "
          "where(), keep the number in a tensor, or look at it outside");
  if (failure_.empty()) looked_at_ = error.what();
  throw error;
}

void Listener::hooked(const Tensor& t) {
  // Those of parameters stay where they are.
  if (is_busy_ || opaque_ > 0 || (t.defined() && !depends(t))) return;
  NotImplementedError error(
      "program", "a hook on a gradient cannot be part of a program" + at(compile::current_place()));
  error.hint("put it on the program's result or on a parameter");
  if (failure_.empty()) failure_ = error.what();
  throw error;
}

std::vector<Tensor> Listener::joined(Form form, const std::vector<Tensor>& some,
                                     const std::vector<Tensor>& others) {
  const std::string whose =
      form == Form::join ? "cond(): both functions give" : "while_loop(): body gives as it gets";
  ARETE_CHECK(some.size() == others.size(),
              ValueError("program", whose + " one number of tensors while a program is recorded")
                  .got(std::to_string(some.size()) + " and " + std::to_string(others.size())));
  for (size_t k = 0; k < some.size(); ++k)
    ARETE_CHECK(
        some[k].dtype() == others[k].dtype() && some[k].device() == others[k].device() &&
            std::ranges::equal(some[k].sizes(), others[k].sizes()),
        ValueError("program", whose + " tensors of one dtype and shape while a program is recorded")
            .got(ops::describe(some[k]) + " and " + ops::describe(others[k])));
  // Who asks for a gradient while recording would get that of one way alone.
  static const autograd::FunctionDef kJoined{
      "joined",
      [](autograd::Context&, const std::vector<Tensor>& all) {
        std::vector<Tensor> copies;
        for (size_t k = 0; k < all.size() / 2; ++k) copies.push_back(all[k].clone());
        return copies;
      },
      [](autograd::Context&, const std::vector<Tensor>&) -> std::vector<Tensor> {
        throw NotImplementedError("program",
                                  "a gradient through cond() or while_loop() cannot be computed "
                                  "while a program is recorded")
            .hint("record the function without it: gradients flow through the program");
      }};
  std::vector<Tensor> all = some;
  all.insert(all.end(), others.begin(), others.end());
  return all.empty() ? all : autograd::apply(kJoined, all);
}

std::vector<Tensor> Listener::mark(Form form, const std::vector<Tensor>& args) {
  struct Busy {
    bool& is_busy;
    explicit Busy(bool& b) : is_busy(b) { b = true; }
    ~Busy() { is_busy = false; }
  } const busy(is_busy_);
  RecordedCall call;
  call.form = form;
  call.place = compile::current_place();
  Argument given{.kind = form == Form::branch || form == Form::test ? Kind::tensor : Kind::tensors};
  for (const Tensor& t : args) {
    ARETE_CHECK(t.defined(), ValueError("program",
                                        "a function of cond() or while_loop() gives an "
                                        "undefined tensor"));
    given.values.push_back(value_of(t));
  }
  call.args.push_back(std::move(given));
  std::vector<Tensor> results;
  if (form == Form::loop) results = joined(form, args, args);
  if (form == Form::join || form == Form::repeat) {
    ARETE_ASSERT(!open_.empty());
    results = joined(form, open_.back(), args);
    open_.pop_back();
  }
  if (form == Form::otherwise || form == Form::loop)
    open_.push_back(form == Form::loop ? results : args);
  const int next = int(body_.inputs.size()) + n_results_;
  const bool fits =
      scopes_.mark(form, next + (form == Form::loop ? int(args.size()) : 0), args.size());
  ARETE_CHECK(fits, NotImplementedError("program",
                                        "cond() and while_loop() are nested too deep, or "
                                        "an error in one was caught"));
  if (form == Form::loop) loops_.push_back(next);
  for (size_t k = 0; k < results.size(); ++k) {
    if (form == Form::repeat)
      know(results[k], loops_.back() + int(k));
    else
      add_result(results[k], call);
    depends_.insert(results[k].storage().get());
  }
  if (form == Form::repeat) loops_.pop_back();
  body_.calls.push_back(std::move(call));
  return results;
}

Body Listener::finish(const std::vector<Tensor>& outputs) {
  guarded([&] {
    for (const Tensor& t : outputs) {
      ARETE_CHECK(t.defined(), ValueError("program", "an output is undefined"));
      body_.outputs.push_back(value_of(t));
    }
  });
  // The function went on after the error.
  ARETE_CHECK(looked_at_.empty(), ValueError("", looked_at_));
  ARETE_CHECK(failure_.empty(), NotImplementedError("", failure_));
  ARETE_CHECK(scopes_.are_closed(),
              NotImplementedError("program",
                                  "an error in a function of cond() or while_loop() "
                                  "was caught while a program was recorded"));
  const int n_inputs = int(body_.inputs.size()), n_constants = int(body_.constants.size());
  const auto number = [&](int& v) {
    if (v == kUndefined) return;
    if (v <= constant_value(0))
      v = n_inputs - v - 2;
    else if (v >= n_inputs)
      v += n_constants;
  };
  for (RecordedCall& c : body_.calls) for_each_value(c, number);
  for (const auto& [k, t] : detached_)
    body_.calls[k].requires_grad = t.requires_grad() && t.is_leaf();
  for (int& v : body_.outputs) number(v);
  for (auto& [name, v] : body_.more_names) {
    number(v);
    v -= n_inputs;
  }
  return std::move(body_);
}

thread_local Listener* listening = nullptr;

}  // namespace

bool is_recording() { return listening && listening->is_open(); }

std::vector<Tensor> record_mark(Form form, const std::vector<Tensor>& args) {
  return listening->mark(form, args);
}

Body record_once(const Program::Function& f, const std::vector<Tensor>& inputs,
                 const RecordOptions& options) {
  // Casts that are kept would be constants.
  ops::clear_autocast_cache();
  struct Restore {
    const Generator::State state = default_generator().state();
    ~Restore() {
      default_generator().set_state(state);
      ops::clear_autocast_cache();
    }
  } const restore;
  // Whoever records may want no gradients; whoever runs the program may.
  const ModesGuard guard;
  modes().grad_enabled = true;
  Listener listener(inputs, options);
  struct Listening {
    Listener* const before = listening;
    explicit Listening(Listener* l) { listening = l; }
    ~Listening() { listening = before; }
  } const listening_now(&listener);
  return listener.finish(f(inputs));
}

}  // namespace arete::program
