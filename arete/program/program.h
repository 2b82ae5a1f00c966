// Saved programs: what a function calls, written down once, as a value that runs without the
// function, in C++ or Python, and can be kept in a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::program {

// Note [Saved programs]
// A program is a list of calls of operators, the ones that a function made itself: not the calls
// inside of them, and no primitives. It is lowered where it runs, so a file knows no device's
// kernels, gradients are those of the operators, and a better kernel of tomorrow is used at once.
// What was a number when it was recorded is a constant. Where sizes shall differ from call to call
// the function is recorded several times, with other sizes, and each integer of its calls is fitted
// as a sum of products of sizes; one more recording checks them. What does not fit is an error that
// names its line, and so is a look at a value: there is no guessing.

/// A dimension of an input whose size differs from call to call: factor * size + offset, where
/// sizes of one name are equal.
struct DynamicSize {
  std::string name;
  size_t input = 0;
  int64_t dim = 0;
  int64_t min = 1, max = std::numeric_limits<int64_t>::max();
  int64_t factor = 1, offset = 0;
};

enum class StateKind : uint8_t {
  parameter,
  buffer,
  constant,  ///< nobody's: what the function made without operators, or held
};

/// A tensor that the function holds.
struct State {
  std::string name;
  Tensor tensor;
  StateKind kind = StateKind::parameter;
  bool persistent = true;  ///< of a buffer: part of state_dict()
};

struct RecordOptions {
  std::vector<std::string> input_names;  ///< default: input_0, input_1, ...
  std::vector<DynamicSize> dynamic;
  std::vector<State> state;  ///< names for tensors that the function holds; all become constants
  /// Dimensions of inputs (input, dimension) that may be dynamic, too, if the function lets them:
  /// those of one position and size together. Where recording fails with other sizes they stay as
  /// they are in the examples.
  std::vector<std::pair<size_t, int64_t>> maybe_dynamic;
  /// If set: operators that stay whole, by their full names. In the place of others that are
  /// composed of operators those are written down.
  std::optional<std::set<std::string>> whole;
};

/// A size that is known when the program runs: "batch", "2*time + 1", "n*n", "8".
struct InputInfo {
  std::string name;
  DType dtype = kFloat32;
  std::vector<std::string> sizes;
};

/// A size of inputs and its range.
struct SizeInfo {
  std::string name;
  int64_t min = 1, max = std::numeric_limits<int64_t>::max();
};

struct Body;

/// A recorded function: Note [Saved programs]. A handle, whose copies share the weights. Running it
/// is thread-safe as the operators are.
class Program {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

  /// Runs `f` on copies of `inputs` and writes its calls down; with dynamic sizes also on inputs of
  /// other sizes (whose values repeat those of the examples). Tensors that `f` holds are constants
  /// of the program, and shared with it; what `f` wrote into them, and the random numbers that it
  /// drew, are undone. ValueError where a value is looked at that depends on the inputs, or where
  /// calls do not fit the sizes; NotImplementedError for what cannot be written down; both with the
  /// line of the Python program, where there is one.
  static Program record(const Function& f, const std::vector<Tensor>& inputs,
                        const RecordOptions& options = {});

  /// Makes the calls, under the modes of the caller, with history. ValueError and TypeError for
  /// inputs of other dtypes or sizes than those recorded; errors of a call say which one it was.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  /// Whether it takes inputs of these dtypes and sizes.
  bool fits(const std::vector<Tensor>& inputs) const;

  /// Writes a file that holds all of it, or none. complex128 constants are a ValueError.
  void save(const std::string& path) const;
  /// Reads a file that may be hostile: IoError says what is wrong with it. The constants are on
  /// `device`, by default the one on which the program was recorded, which then must be there.
  static Program load(const std::string& path, std::optional<Device> device = {});
  /// The same of a file that lies in memory; `name` is for error texts.
  static Program parse(std::span<const std::byte> bytes, const std::string& name,
                       std::optional<Device> device = {});

  /// One line a call.
  std::string to_string() const;

  std::vector<InputInfo> inputs() const;
  size_t output_count() const;
  /// Sizes that differ from call to call.
  std::vector<SizeInfo> sizes() const;
  /// The constants, as handles: writing into them changes the program.
  std::vector<State> state() const;
  /// Puts a tensor of the same dtype and sizes in the place of a constant. ValueError where there
  /// is none of this name, or the tensor does not fit.
  void set_state(const std::string& name, const Tensor& t);
  /// Constants that the calls write into.
  std::vector<std::string> written() const;
  /// The device on which it was recorded, or loaded to.
  Device device() const;
  /// Moves the constants, in place, and has the calls make their tensors there.
  void to(Device device);
  /// Its parameters and buffers become constants that want no gradient.
  void freeze();
  /// A program of its own, with copies of the constants.
  Program clone() const;
  /// Names of the operators called, each once, sorted.
  std::vector<std::string> operators() const;

  /// Texts that are kept with the program.
  const std::map<std::string, std::string>& metadata() const;
  void set_metadata(const std::string& key, const std::string& value);

  /// The inside, for this folder and the binding.
  const Body& body() const { return *body_; }

 private:
  explicit Program(std::shared_ptr<Body> body) : body_(std::move(body)) {}
  std::shared_ptr<Body> body_;
};

/// if_true() if `pred`, a tensor of one bool, is true, else if_false(). While a program is recorded
/// both run, and it chooses when it runs: what they give has to be of the same dtypes and sizes.
std::vector<Tensor> cond(const Tensor& pred, const std::function<std::vector<Tensor>()>& if_true,
                         const std::function<std::vector<Tensor>()>& if_false);

/// carried = body(carried) as long as condition(carried), a tensor of one bool, is true. While a
/// program is recorded both run once, and what is carried keeps its dtypes and sizes.
std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                               const Program::Function& body, std::vector<Tensor> carried);

}  // namespace arete::program
