// Settings of optimizers, and how an optimizer's options describe themselves.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::optim {

/// A number that an update is computed with: one that is written here, or the element of a tensor,
/// which is read anew at each step: a learning rate, say, that a program on the device changes.
class Setting {
 public:
  Setting(double value = 0) : value_(value) {}
  template <std::integral T>
  Setting(T value) : value_(double(value)), whole_(true) {}
  /// ValueError unless it has one element, which is not complex.
  Setting(Tensor value);
  /// One that decides what a step does (a flag, a choice, a number of repetitions): a step that is
  /// recorded cannot follow it.
  static Setting fixed(Setting value);

  /// Reads the tensor if it is one, which may wait for the device.
  double value() const { return tensor_.defined() ? tensor_.item<double>() : value_; }
  operator double() const { return value(); }
  /// Undefined for a number.
  const Tensor& tensor() const { return tensor_; }
  bool is_fixed() const { return fixed_; }
  /// Written as an integer.
  bool is_whole() const { return whole_; }
  /// False only for a number that is 0: a tensor may become another one.
  bool may_count() const { return tensor_.defined() || value_ != 0; }
  /// Another number, into the tensor if it is one.
  void set(double value);
  /// The number as it was written.
  std::string text() const;

 private:
  double value_ = 0;
  bool whole_ = false, fixed_ = false;
  Tensor tensor_;
};

/// Settings of a parameter group by name ("lr", "momentum", "beta1", ...).
using Settings = std::vector<std::pair<std::string_view, Setting>>;

/// What a number must fulfil, and how the error begins if it does not; the number follows.
struct Check {
  enum Range { anything, not_negative, fraction, up_to_one, not_positive, at_least_one } range;
  const char* text;
  bool fixed = false;  ///< see Setting::fixed
  bool holds(double value) const;
};
constexpr Check any_number{Check::anything, ""};
constexpr Check fixed_number{Check::anything, "", true};
constexpr Check not_negative(const char* text) { return {Check::not_negative, text}; }
/// In [0, 1).
constexpr Check fraction(const char* text) { return {Check::fraction, text}; }
constexpr Check is_learning_rate = not_negative("Invalid learning rate: ");
constexpr Check is_weight_decay = not_negative("Invalid weight_decay value: ");

// Note [Fields of options]
// Each struct of options has a function `fields(visit, options)` that shows a visitor every option
// once: name, place and check, in the order of PyTorch's arguments. Settings of groups, the reader
// of Python's groups and the arguments of Python's classes are all made from it, so an option is
// written down in one place. A visitor has these functions:
//   visit(name, place[, check])            a number (Setting), one that may not be given
//                                          (std::optional<double>), or a flag (bool)
//   visit.tuple(name, member(...), ...)    numbers that are one argument in Python, as betas are
//   visit.choice(name, place, texts)       an enumeration or flag that is a text, or None, there
//   visit.fixed(name, value)               a flag that cannot be chosen
//   visit.own(name, place)                 a flag that PyTorch has not: in Python by name only, and
//                                          in a group only where it is set
//   visit.python(name)                     an argument of Python alone, None by default
//   visit.keywords()                       from here on Python's arguments are given by name
// A rule between several options is a member function `void check() const`.

/// A number inside a tuple.
template <class T>
struct Member {
  const char* name;
  T& place;
  Check check;
};
template <class T>
Member<T> member(const char* name, T& place, Check check = any_number) {
  return {name, place, check};
}

/// An optional number is NaN among settings where it is not given.
double number_of(const std::optional<double>& value);

/// Writes options as settings, and checks them if asked (ValueError).
class SettingsWriter {
 public:
  SettingsWriter(const char* optimizer, bool checks) : optimizer_(optimizer), checks_(checks) {}
  void operator()(const char* name, const Setting& place, Check check = any_number) {
    add(name, place, check);
  }
  void operator()(const char* name, const std::optional<double>& place, Check check = any_number) {
    add(member(name, place, check));
  }
  void operator()(const char* name, bool place) { add(name, int(place), fixed_number); }
  template <class... T>
  void tuple(const char*, const Member<T>&... members) {
    (add(members), ...);
  }
  template <class T, size_t N>
  void choice(const char* name, const T& place, const std::array<const char*, N>&) {
    add(name, int(place), fixed_number);
  }
  void fixed(const char* name, bool value) { (*this)(name, value); }
  void own(const char* name, bool place) { (*this)(name, place); }
  void python(const char*) {}
  void keywords() {}
  Settings take() { return std::move(settings_); }

 private:
  void add(const Member<const Setting>& m) { add(m.name, m.place, m.check); }
  void add(const Member<const std::optional<double>>& m) {
    add(m.name, number_of(m.place), m.place ? m.check : any_number);
  }
  void add(const char* name, Setting value, Check check);
  const char* optimizer_;
  bool checks_;
  Settings settings_;
};

template <class Options>
concept HasRules = requires(const Options& o) {
  o.check();
};

/// The settings of a group with these options; `checks`: ValueError for what makes no sense.
template <class Options>
Settings settings_of(const Options& options, bool checks = true) {
  SettingsWriter writer(Options::kOptimizer, checks);
  Options::fields(writer, options);
  if constexpr (HasRules<Options>)
    if (checks) options.check();
  return writer.take();
}

}  // namespace arete::optim
