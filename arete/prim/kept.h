// Calls that outlive what they were made of.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "arete/prim/forward.h"
#include "arete/prim/values.h"

namespace arete::prim {

/// A number of a call: what it would take from memory as f64 or i64.
struct Number {
  DType dtype;
  expr::Literal value;
};

/// A copy of a call's arguments that owns everything they borrow: sizes, lists, programs. Memory is
/// not owned: see Recorder.
template <class Args>
class Kept {
 public:
  explicit Kept(const Args& args) : args_(args) {
    Args::describe(args_, Owner{*this});
    if constexpr (requires { args_.effect; }) effect_ = args_.effect->shared_from_this();
  }
  Kept(Kept&&) noexcept = default;
  Kept& operator=(Kept&&) noexcept = default;

  const Args& args() const { return args_; }
  /// Runs it, and what it is made of, under its context.
  template <Primitive P>
  ResultOf<P> run(Primitives& on) const {
    const ContextScope scope(args_.context);
    return run_primitive<P>(on, args_);
  }
  /// Calls f(View&, Access) for every operand that is there: it may be given another address.
  template <class F>
  void for_each_operand(F&& f) {
    Args::describe(args_, Changer<F>{f});
  }

  /// Calls f(address) for every number of number_fields(), then for the parameters: 64 bits each.
  template <class F>
  void for_each_number(F&& f) {
    const auto give = [&](auto& number) {
      static_assert(sizeof(number) == sizeof(uint64_t));
      f(static_cast<void*>(&number));
    };
    number_fields(args_, give);
    for_each_program(args_, [&](const auto* program, auto& params, auto&) {
      for (size_t k = 0; k < params_of(program).size(); ++k)
        give(const_cast<expr::Literal&>(params[k]));  // they are numbers_
    });
  }

  /// Parameters of its programs, in their order, as they were given.
  std::vector<Number> numbers() const {
    std::vector<Number> all;
    for_each_program(args_, [&](const auto* program, auto& params, auto&) {
      const auto types = params_of(program);
      for (size_t k = 0; k < types.size(); ++k)
        all.push_back({expr::is_float(types[k]) ? kFloat64 : kInt64, params[k]});
    });
    return all;
  }
  /// Makes number k a slot.
  void put_in_memory(size_t k, const View& value) {
    size_t first = 0;
    for_each_program(args_, [&](const auto* program, auto&, std::span<const Slot>& slots) {
      const size_t last = first + params_of(program).size();
      if (first <= k && k < last) add_slot(slots, k - first, value);
      first = last;
    });
  }
  /// Gives a random call its state; others have none.
  void put_random_state(const View& state) {
    if constexpr (requires { args_.state; }) {
      args_.state = state;
      Owner{*this}(args_.state);
    }
  }

 private:
  void add_slot(std::span<const Slot>& slots, size_t number, const View& value) {
    std::vector<Slot> all(slots.begin(), slots.end());
    all.push_back({int(number), value});
    slots = all;
    Owner{*this}.own(slots);
  }
  struct Owner {
    Kept& kept;
    void operator()(View& view, Access = Access::read) {
      (*this)(view.sizes);
      (*this)(view.strides);
    }
    void operator()(std::span<const View>& views, Access) {
      auto& mine = kept.views_.emplace_back(views.begin(), views.end());
      for (View& view : mine) (*this)(view);
      views = mine;
    }
    void operator()(auto& program, std::span<const expr::Literal>& params,
                    std::span<const Slot>& slots) {
      own(program);
      params = kept.numbers_.emplace_back(params.begin(), params.end());
      own(slots);
    }
    void operator()(IntList& list) { list = kept.lists_.emplace_back(list); }
    void own(std::span<const Slot>& slots) {
      auto& mine = kept.slots_.emplace_back(slots.begin(), slots.end());
      for (Slot& slot : mine) (*this)(slot.value);
      slots = mine;
    }
    void own(const expr::Program*& program) {
      if (program) kept.programs_.push_back(program->shared_from_this());
    }
    void own(const FusedSpec*& spec) {
      kept.spec_ = std::make_shared<const FusedSpec>(*spec);
      spec = kept.spec_.get();
    }
  };
  template <class F>
  struct Changer {
    F& f;
    void operator()(View& view, Access access) {
      if (view) f(view, access);
    }
    void operator()(std::span<const View>& views, Access access) {
      for (const View& view : views) f(const_cast<View&>(view), access);  // they are views_
    }
    void operator()(auto&, auto&, std::span<const Slot>& slots) {
      for (const Slot& slot : slots) f(const_cast<View&>(slot.value), Access::read);
    }
    void operator()(IntList&) {}
  };

  Args args_;
  // Deques, since elements of lists must not move while others are added.
  std::deque<std::vector<View>> views_;
  std::deque<std::vector<Slot>> slots_;
  std::deque<std::vector<expr::Literal>> numbers_;
  std::deque<Shape> lists_;
  std::vector<expr::ProgramPtr> programs_;
  std::shared_ptr<const FusedSpec> spec_;
  std::shared_ptr<const Effect> effect_;
};

}  // namespace arete::prim
