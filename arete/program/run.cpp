// Makes the calls of a program.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "arete/amp/autocast.h"
#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/program_arguments.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

using Kind = ops::Arg::Kind;

const Tensor& undefined() {
  static const Tensor none;
  return none;
}

// The arguments of one call; keeps what they borrow.
class Arguments {
 public:
  Arguments(const RecordedCall& c, const std::vector<Tensor>& values,
            const std::vector<int64_t>& sizes) {
    const size_t n = c.args.size();
    lists_.reserve(n), shapes_.reserve(n), scalars_.reserve(n);
    const auto tensor = [&](int v) -> const Tensor& {
      return v == kUndefined ? undefined() : values[size_t(v)];
    };
    for (const Argument& a : c.args) {
      switch (a.kind) {
        case Kind::tensor:
          args_.push_back(ops::Arg(tensor(a.values[0])));
          break;
        case Kind::tensors: {
          std::vector<Tensor>& list = lists_.emplace_back();
          for (const int v : a.values) list.push_back(tensor(v));
          args_.push_back(ops::Arg(list));
          break;
        }
        case Kind::ints: {
          if (a.extents.empty()) {
            args_.push_back(a.value.borrow());
            break;
          }
          Shape& s = shapes_.emplace_back();
          for (const Extent& e : a.extents) s.push_back(value_of(e, sizes));
          args_.push_back(ops::Arg(IntList(s)));
          break;
        }
        case Kind::program:
          program_ = {.program = a.program.get(), .params = a.params};
          args_.push_back(ops::Arg(program_));
          break;
        case Kind::none:
          // Where a tensor is looked for, an undefined one is found.
          args_.push_back(ops::Arg(undefined()));
          break;
        default:
          if (a.extents.empty())
            args_.push_back(a.value.borrow());
          else
            add_number(a, value_of(a.extents[0], sizes));
      }
    }
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  std::span<const ops::Arg> get() const { return {args_.data(), args_.size()}; }

 private:
  void add_number(const Argument& a, int64_t v) {
    if (a.kind == Kind::integer)
      args_.push_back(ops::Arg(v));
    else if (a.kind == Kind::real)
      args_.push_back(ops::Arg(double(v)));
    else
      args_.push_back(ops::Arg(
          scalars_.emplace_back(a.value.scalar.is_floating() ? Scalar(double(v)) : Scalar(v))));
  }
  SmallVector<ops::Arg, 8> args_;
  std::vector<std::vector<Tensor>> lists_;
  std::vector<Shape> shapes_;
  std::vector<Scalar> scalars_;
  ops::AppliedProgram program_;
};

// Autocast as it was inside a composition.
class Region {
 public:
  explicit Region(const AutocastOf& a) : cpu_(kCPU, a.cpu, a.cpu.has_value(), false) {
    // Where there is no GPU a region for it says so on stderr.
    if (a.cuda) cuda_.emplace(kCUDA, a.cuda, true, false);
  }

 private:
  amp::Autocast cpu_;
  std::optional<amp::Autocast> cuda_;
};

void check_function(const RecordedCall& c, std::span<const ops::Arg> args) {
  bool any = false;
  for (const ops::Arg& a : args) {
    if (a.kind() == Kind::tensor) any = any || a.tensor().requires_grad();
    if (a.kind() == Kind::tensors)
      for (const Tensor& t : a.tensors()) any = any || (t.defined() && t.requires_grad());
  }
  ARETE_CHECK(!any || !is_grad_enabled(),
              AutogradError("program", "the backward function of '" + c.function +
                                           "' is no part of the program, and a gradient would "
                                           "have to pass it")
                  .hint("run the program under no_grad(), or with inputs and parameters that do "
                        "not require grad"));
}

ops::Results make_call(const RecordedCall& c, std::vector<Tensor>& values,
                       const std::vector<int64_t>& sizes) {
  if (c.form == Form::detach) {
    Tensor t = values[size_t(c.args[0].values[0])].detach();
    if (c.requires_grad) t.requires_grad_();
    return {t};
  }
  const Arguments args(c, values, sizes);
  if (!c.function.empty()) check_function(c, args.get());
  const ModesGuard before;
  if (c.no_grad || !c.function.empty()) modes().grad_enabled = false;
  std::optional<Region> region;
  if (c.autocast) region.emplace(*c.autocast);
  switch (c.form) {
    case Form::in_place:
      ops::call_in_place(values[size_t(c.args[0].values[0])], *c.op, args.get());
      return {};
    case Form::out: {
      SmallVector<Tensor*, 2> outs;
      for (const int v : c.outs) outs.push_back(&values[size_t(v)]);
      ops::call_into({outs.data(), outs.size()}, *c.op, args.get());
      return {};
    }
    default:
      if (c.args.size() == 2 && c.args[0].kind == Kind::program)
        ops::check_program_inputs(c.args[0].program->inputs(), args.get()[1].tensors(),
                                  c.op->name.c_str());
      return ops::call_all(*c.op, args.get());
  }
}

}  // namespace

std::vector<int64_t> sizes_of(const Body& body, const std::vector<Tensor>& inputs) {
  ARETE_CHECK(inputs.size() == body.inputs.size(),
              ValueError("program", "the program takes " + std::to_string(body.inputs.size()) +
                                        " tensors, but got " + std::to_string(inputs.size())));
  std::vector<int64_t> sizes(body.symbols.size(), -1);
  std::vector<std::string> from(body.symbols.size());
  const auto dimension = [&](size_t i, size_t d) {
    return "Expected input '" + body.inputs[i].name + "' at dimension " + std::to_string(d) +
           " to be ";
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& [name, type] = body.inputs[i];
    const Tensor& t = inputs[i];
    ARETE_CHECK(t.defined(), ValueError("program", "input '" + name + "' is undefined"));
    ARETE_CHECK(t.dtype() == type.dtype,
                TypeError("program", "Expected input '" + name + "' to be of dtype " +
                                         std::string(name_of(type.dtype)) + ", but got " +
                                         std::string(name_of(t.dtype()))));
    ARETE_CHECK(size_t(t.dim()) == type.sizes.size(),
                ValueError("program", "Expected input '" + name + "' to have " +
                                          std::to_string(type.sizes.size()) +
                                          " dimensions, but got " + ops::describe(t)));
    for (size_t d = 0; d < type.sizes.size(); ++d) {
      const Extent& e = type.sizes[d];
      const int64_t n = t.size(int64_t(d));
      if (e.is_constant()) {
        ARETE_CHECK(n == e.constant, ValueError("program", dimension(i, d) + "equal to " +
                                                               std::to_string(e.constant) +
                                                               ", but got " + std::to_string(n)));
        continue;
      }
      const size_t s = size_t(e.terms[0].a);
      const SizeInfo& info = body.symbols[s];
      if (sizes[s] < 0) {
        int64_t size = 0;
        const bool fits = !__builtin_sub_overflow(n, e.constant, &size) && size >= 0 &&
                          size % e.terms[0].factor == 0;
        ARETE_CHECK(fits, ValueError("program", dimension(i, d) + text_of(e, body.symbols) +
                                                    ", but got " + std::to_string(n)));
        size /= e.terms[0].factor;
        const int64_t border = size < info.min ? info.min : info.max;
        ARETE_CHECK(
            size == std::clamp(size, info.min, info.max),
            ValueError("program", dimension(i, d) + (size < info.min ? ">= " : "<= ") +
                                      std::to_string(value_of(e, std::vector(s + 1, border))) +
                                      ", but got " + std::to_string(n))
                .hint("this is the range of '" + info.name + "'"));
        sizes[s] = size;
        from[s] = "dimension " + std::to_string(d) + " of '" + name + "'";
      }
      const int64_t expected = value_of(e, sizes);
      ARETE_CHECK(n == expected,
                  ValueError("program", dimension(i, d) + "equal to " + std::to_string(expected) +
                                            ", but got " + std::to_string(n))
                      .hint("it was the same size as " + from[s] +
                            ", or followed from the same one, when the program was recorded"));
    }
  }
  return sizes;
}

namespace {

class Run {
 public:
  Run(const Body& body, const std::vector<Tensor>& inputs)
      : body_(body), sizes_(sizes_of(body, inputs)), values_(size_t(body.n_values())) {
    std::ranges::copy(inputs, values_.begin());
    for (size_t k = 0; k < body.constants.size(); ++k)
      values_[inputs.size() + k] = body.constants[k].tensor;
  }

  // The calls from the first to before the last.
  void make_calls(size_t first, size_t last) {
    for (size_t k = first; k < last; ++k) {
      const Form form = body_.calls[k].form;
      if (form == Form::branch)
        k = choose(k);
      else if (form == Form::loop)
        k = loop(k);
      else
        call(k);
      drop(k);
    }
  }

  std::vector<Tensor> outputs() const { return list(body_.outputs); }

 private:
  std::vector<Tensor> list(const std::vector<int>& of) const {
    std::vector<Tensor> all;
    for (const int v : of) all.push_back(values_[size_t(v)]);
    return all;
  }
  std::vector<Tensor> arguments(size_t k) const { return list(body_.calls[k].args[0].values); }
  void drop(size_t k) {
    for (const int v : body_.calls[k].last_uses) values_[size_t(v)] = Tensor();
  }
  void give(size_t k, std::span<Tensor> results) {
    for (size_t r = 0; r < results.size(); ++r)
      values_[size_t(body_.calls[k].first_result) + r] = std::move(results[r]);
  }

  void call(size_t k) {
    const RecordedCall& c = body_.calls[k];
    try {
      ops::Results results = make_call(c, values_, sizes_);
      ARETE_CHECK(results.size() == c.results.size(),
                  ValueError("program",
                             "a call gives another number of tensors than when it was "
                             "recorded")
                      .expected(std::to_string(c.results.size()))
                      .got(std::to_string(results.size())));
      give(k, {results.data(), results.size()});
    } catch (const Error& e) {
      throw_again(e, e.message(),
                  (e.hint().empty() ? "" : e.hint() + "; ") + "in " + call_text(body_, k) +
                      " of a program");
    }
  }

  // Through cond() and while_loop(), which are recorded where this run is. They give the last mark.
  size_t choose(size_t branch) {
    const size_t otherwise = body_.calls[branch].next_mark;
    const size_t join = body_.calls[otherwise].next_mark;
    const auto part = [&](size_t from, size_t to) {
      return [this, from, to] {
        make_calls(from + 1, to);
        std::vector<Tensor> results = arguments(to);
        drop(to);
        return results;
      };
    };
    const Tensor pred = arguments(branch)[0];
    drop(branch);
    std::vector<Tensor> results = cond(pred, part(branch, otherwise), part(otherwise, join));
    give(join, results);
    return join;
  }

  size_t loop(size_t loop) {
    const size_t test = body_.calls[loop].next_mark, repeat = body_.calls[test].next_mark;
    std::vector<Tensor> first = arguments(loop);
    drop(loop);
    std::vector<Tensor> results = while_loop(
        [&](std::vector<Tensor> carried) {
          give(loop, carried);
          make_calls(loop + 1, test);
          return arguments(test)[0];
        },
        [&](const std::vector<Tensor>&) {
          drop(test);
          make_calls(test + 1, repeat);
          return arguments(repeat);
        },
        std::move(first));
    give(loop, results);
    return repeat;
  }

  const Body& body_;
  const std::vector<int64_t> sizes_;
  std::vector<Tensor> values_;
};

std::atomic<void (*)()> between_rounds = nullptr;

bool truth_of(const Tensor& t, const char* whose) {
  ARETE_CHECK(
      t.defined() && t.dtype() == kBool && t.numel() == 1,
      ValueError("program", std::string(whose) + " a tensor of one bool").got(ops::describe(t)));
  return t.item<bool>();
}

}  // namespace

std::vector<Tensor> run(const Body& body, const std::vector<Tensor>& inputs) {
  Run run(body, inputs);
  run.make_calls(0, body.calls.size());
  return run.outputs();
}

std::vector<Tensor> cond(const Tensor& pred, const std::function<std::vector<Tensor>()>& if_true,
                         const std::function<std::vector<Tensor>()>& if_false) {
  if (!is_recording()) return truth_of(pred, "cond(): pred is") ? if_true() : if_false();
  record_mark(Form::branch, {pred});
  record_mark(Form::otherwise, if_true());
  return record_mark(Form::join, if_false());
}

std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const Program::Function& body, std::vector<Tensor> carried) {
  if (is_recording()) {
    carried = record_mark(Form::loop, carried);
    record_mark(Form::test, {condition(carried)});
    return record_mark(Form::repeat, body(carried));
  }
  using Clock = std::chrono::steady_clock;
  for (auto last = Clock::now(); truth_of(condition(carried), "while_loop(): the condition is");) {
    if (const auto now = Clock::now(); now - last > std::chrono::milliseconds(50)) {
      last = now;
      if (void (*const f)() = between_rounds) f();
    }
    std::vector<Tensor> next = body(carried);
    ARETE_CHECK(next.size() == carried.size(),
                ValueError("while_loop", "body gives as many tensors as are carried")
                    .expected(std::to_string(carried.size()))
                    .got(std::to_string(next.size())));
    carried = std::move(next);
  }
  return carried;
}

void set_between_rounds(void (*f)()) { between_rounds = f; }

}  // namespace arete::program
