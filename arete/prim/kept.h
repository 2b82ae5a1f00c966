// Calls that outlive what they were made of.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "arete/prim/args.h"

namespace arete::prim {

/// A copy of a call's arguments that owns everything they borrow: sizes, lists, programs. Memory is
/// not owned: see Recorder.
template <class Args>
class Kept {
 public:
  explicit Kept(const Args& args) : args_(args) { Args::describe(args_, Owner{*this}); }
  Kept(Kept&&) noexcept = default;
  Kept& operator=(Kept&&) noexcept = default;

  const Args& args() const { return args_; }
  /// Calls f(View&, Access) for every operand that is there: it may be given another address.
  template <class F>
  void for_each_operand(F&& f) {
    Args::describe(args_, Changer<F>{f});
  }

 private:
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
    void operator()(std::span<const Slot>& slots) {
      auto& mine = kept.slots_.emplace_back(slots.begin(), slots.end());
      for (Slot& slot : mine) (*this)(slot.value);
      slots = mine;
    }
    void operator()(std::span<const expr::Literal>& numbers) {
      numbers = kept.numbers_.emplace_back(numbers.begin(), numbers.end());
    }
    void operator()(IntList& list) { list = kept.lists_.emplace_back(list); }
    void operator()(const expr::Program*& program) {
      if (program) kept.programs_.push_back(program->shared_from_this());
    }
    void operator()(const FusedSpec*& spec) {
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
    void operator()(std::span<const Slot>& slots) {
      for (const Slot& slot : slots) f(const_cast<View&>(slot.value), Access::read);
    }
    template <class Other>
    void operator()(Other&) {}
  };

  Args args_;
  // Deques, since elements of lists must not move while others are added.
  std::deque<std::vector<View>> views_;
  std::deque<std::vector<Slot>> slots_;
  std::deque<std::vector<expr::Literal>> numbers_;
  std::deque<Shape> lists_;
  std::vector<expr::ProgramPtr> programs_;
  std::shared_ptr<const FusedSpec> spec_;
};

}  // namespace arete::prim
