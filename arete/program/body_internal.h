// What a program is made of.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/expr/program.h"
#include "arete/ops/record.h"
#include "arete/program/program.h"

namespace arete::program {

/// factor * size a * size b; -1: no size.
struct Term {
  int64_t factor = 0;
  int a = -1, b = -1;
  bool operator==(const Term&) const = default;
};

/// An integer of a call: a constant and terms of sizes. In texts of results it may be unknown,
/// where it depends on values.
struct Extent {
  int64_t constant = 0;
  std::vector<Term> terms{};
  bool is_known = true;
  Extent(int64_t v = 0) : constant(v) {}
  static Extent unknown() {
    Extent e;
    e.is_known = false;
    return e;
  }
  bool is_constant() const { return is_known && terms.empty(); }
  bool operator==(const Extent&) const = default;
};

/// Its value for sizes; ValueError where that is no 64-bit integer.
int64_t value_of(const Extent& e, std::span<const int64_t> sizes);
std::string text_of(const Extent& e, const std::vector<SizeInfo>& symbols);

struct TensorType {
  DType dtype = kFloat32;
  std::vector<Extent> sizes;
};

// Values are numbered: inputs, constants, results in the order of the calls. While a program is
// recorded, when the number of constants is not known, constant k is ~k - 1 and results follow the
// inputs.
constexpr int kUndefined = -1;

/// An argument of a call.
struct Argument {
  ops::Arg::Kind kind = ops::Arg::Kind::none;
  std::vector<int> values{};      // tensor (one), tensors
  ops::OwnedArg value{};          // everything else but programs
  std::vector<Extent> extents{};  // in the place of value's integers, where sizes decide them
  expr::ProgramPtr program{};     // of an anonymous record
  std::vector<expr::Literal> params{};
};

enum class Form : uint8_t {
  call,
  in_place,
  out,     // into tensors that are there
  detach,  // no operator: the tensor without history
  // Note [Control flow in programs]
  // The calls of the functions that cond() and while_loop() take stand in the list, between marks,
  // and see all values before them:
  //   branch(pred) ... otherwise(results) ... results = join(results)
  //   carried = loop(first) ... test(condition) ... repeat(next)
  // After repeat() `carried` is what was carried last. What is made between marks is gone behind
  // the part that made it (class Scopes).
  branch,
  otherwise,
  join,
  loop,
  test,
  repeat,
};
constexpr int kNumForms = int(Form::repeat) + 1;
std::string_view name_of(Form form);
constexpr bool is_mark(Form form) { return form >= Form::branch; }

/// Where autocast is on inside a composition.
struct AutocastOf {
  std::optional<DType> cpu, cuda;
  bool operator==(const AutocastOf&) const = default;
};

struct RecordedCall {
  Form form = Form::call;
  const ops::OpRecord* op = nullptr;  // none: detach and marks
  std::vector<Argument> args{};
  std::vector<int> outs{};
  std::vector<TensorType> results{};
  int first_result = 0;  // the value
  bool no_grad = false;
  bool requires_grad = false;  // detach: afterwards
  bool writes = false;         // into tensors among its arguments, as it was seen
  std::string function{};      // a custom function, around it, whose backward is not in the program
  std::optional<AutocastOf> autocast{};
  std::string place{};
  std::vector<int> last_uses{};  // values that are dropped after it
  size_t next_mark = 0;          // of branch, otherwise, loop and test: where the next one is

  /// "add", "detach", "branch".
  std::string name() const;
};

/// Which values are there at a point of a list of calls.
class Scopes {
 public:
  /// Sees a mark; `next` is the value that comes next, `count` how many values the mark takes.
  /// False if the mark does not belong there.
  bool mark(Form form, int next, size_t count);
  bool holds(int value) const;
  bool are_closed() const { return open_.empty(); }

 private:
  struct Open {
    Form last;
    int first;     // value of the part
    size_t count;  // of results
  };
  std::vector<Open> open_;
  std::vector<std::pair<int, int>> gone_;  // [first, last), in their order, apart
};

struct Input {
  std::string name;
  TensorType type;
};

struct Body {
  Device device;
  std::vector<SizeInfo> symbols;
  std::vector<Input> inputs;
  std::vector<State> constants;
  // More names of constants: state that is there under several.
  std::vector<std::pair<std::string, int>> more_names;
  std::vector<bool> wants_gradient;  // of constants, until a file that is read gave their tensors
  std::vector<int> written;          // constants that the calls write into
  std::vector<RecordedCall> calls;
  std::vector<int> outputs;
  std::map<std::string, std::string> metadata;

  int n_values() const;
  int n_results() const;
  /// Sets first_result, last_uses and next_mark.
  void finish();
  /// "%x", "%3".
  std::string name_of(int value) const;
};

/// "call 3 (add, model.py:12 in forward)".
std::string call_text(const Body& body, size_t call);

/// Calls f(value) for each value that a call reads: arguments and outs.
template <class F>
void for_each_value(RecordedCall& c, F&& f) {
  for (Argument& a : c.args)
    for (int& v : a.values) f(v);
  for (int& v : c.outs) f(v);
}
template <class F>
void for_each_value(const RecordedCall& c, F&& f) {
  for (const Argument& a : c.args)
    for (const int v : a.values) f(v);
  for (const int v : c.outs) f(v);
}

/// The record that a program may call under this name: an operator's, or a function's of the
/// library that is none; null if there is none.
const ops::OpRecord* find_callable(std::string_view name);
/// Whether a file may call it.
bool is_for_files(const ops::OpRecord& op);
/// Whether it is one of an expression program ("name(Program program, Tensor[] inputs)").
bool takes_program(const ops::OpRecord& op);

/// One run of `f` on `inputs`, which it may write into.
Body record_once(const Program::Function& f, const std::vector<Tensor>& inputs,
                 const RecordOptions& options);

/// Whether the calls of this thread are written down just now.
bool is_recording();
/// Writes a mark down, and gives its results, or those of the loop that it ends.
std::vector<Tensor> record_mark(Form form, const std::vector<Tensor>& args);

/// Recordings with other sizes as one program. sizes[r][s]: size s in recording r; the first one is
/// the base, then one for each size, one for each pair of them, with `squares` a second one for
/// each size, and the rest are checks. `is_unfit`: whether it failed for a number that does not
/// fit.
Body merge(std::vector<Body> recordings, const std::vector<std::vector<int64_t>>& sizes,
           const std::vector<SizeInfo>& symbols, bool squares, bool& is_unfit);

std::vector<Tensor> run(const Body& body, const std::vector<Tensor>& inputs);
/// What loops call every 50 ms between rounds, in their thread; what it throws ends them. The
/// binding looks for signals there.
void set_between_rounds(void (*f)());
/// The dynamic sizes that inputs have; checks everything that is known of inputs.
std::vector<int64_t> sizes_of(const Body& body, const std::vector<Tensor>& inputs);

/// program.json; constants are written beside it, under the names of weight_names().
std::string write_json(const Body& body, bool for_file = true);
/// The inverse, without the constants' tensors, whose dtypes are not looked at. IoError.
Body read_json(std::string_view text, const std::string& file_name);
std::vector<std::string> weight_names(const Body& body);

}  // namespace arete::program
