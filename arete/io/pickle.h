// The part of Python's pickles that files of tensors are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace arete::io {

/// A machine that builds values from a pickle. Values are numbered, and live in one list: nesting
/// costs no stack, and a pickle makes no more of them than it has bytes.
class PickleMachine {
 public:
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    bytes,
    list,
    tuple,
    set,
    dict,
    global,  ///< "module.name", in text
    other,   ///< what the user of the machine made; integer is its own number
    mark,
  };
  struct Value {
    Kind kind = Kind::none;
    int64_t integer = 0;
    double real = 0;
    std::string text;
    std::vector<size_t> items;  ///< of dicts keys and values in turn
  };
  /// Says what a call of a global with arguments (a tuple) gives, what a persistent id stands for,
  /// and takes the state that an object is given. They may add values.
  struct Meaning {
    std::function<size_t(size_t global, const std::vector<size_t>& arguments)> call;
    std::function<size_t(size_t id)> persistent;
    std::function<void(size_t object, size_t state)> build;
  };

  PickleMachine(Meaning meaning, std::string_view file_name)
      : meaning_(std::move(meaning)), file_name_(file_name) {}

  /// Runs one pickle; its value, and in `used` how many bytes it has. IoError.
  size_t run(std::span<const std::byte> bytes, size_t* used = nullptr);

  const Value& operator[](size_t i) const { return values_[i]; }
  Value& operator[](size_t i) { return values_[i]; }
  size_t size() const { return values_.size(); }
  size_t add(Value v) {
    values_.push_back(std::move(v));
    return values_.size() - 1;
  }
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void step(uint8_t code);
  std::span<const std::byte> take(uint64_t n);
  uint64_t number(int bytes) { return little(take(uint64_t(bytes))); }
  static uint64_t little(std::span<const std::byte> bytes);
  std::string line();
  std::string text(uint64_t n);
  void push(Kind kind, int64_t integer = 0) { stack_.push_back(add({kind, integer, 0, {}, {}})); }
  void push_text(Kind kind, std::string text) {
    stack_.push_back(add({kind, 0, 0, std::move(text), {}}));
  }
  void push_long(std::span<const std::byte> bytes);
  void push_tuple(size_t n);
  size_t pop();
  size_t top() const;
  std::vector<size_t> pop_to_mark();
  void append(const std::vector<size_t>& items, Kind a, Kind b, bool pairs);
  void remember(uint64_t place);

  Meaning meaning_;
  std::string file_name_;
  std::vector<Value> values_;
  std::vector<size_t> stack_;
  std::unordered_map<uint64_t, size_t> memo_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

}  // namespace arete::io
