// One record per operator: everything that the library knows of it in one place, to which its
// samples belong (docs/architecture.md).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arete/core/generator.h"
#include "arete/core/history.h"
#include "arete/core/tensor.h"
#include "arete/expr/value.h"
#include "arete/prim/backend.h"

namespace arete::ops {

struct OpRecord;

class RowProgram;

namespace vmaps {
struct Rewriting;
}

/// A program with the numbers of its parameters: what a call of an anonymous record applies. One of
/// the two programs is there, or none where a part of a call has no program.
struct AppliedProgram {
  const expr::Program* program = nullptr;
  const RowProgram* rows = nullptr;
  std::span<const expr::Literal> params;
};

/// An argument of a call, borrowed for its duration (tensors and lists by pointer).
class Arg {
 public:
  enum class Kind : uint8_t {
    none,
    tensor,
    tensors,
    boolean,
    integer,
    real,
    scalar,
    ints,
    reals,
    string,
    dtype,
    device,
    generator,
    program,
  };
  Arg() = default;
  Arg(std::nullopt_t) {}
  Arg(const Tensor& t) : kind_(t.defined() ? Kind::tensor : Kind::none) { tensor_ = &t; }
  Arg(std::span<const Tensor> t) : kind_(Kind::tensors), count_(uint32_t(t.size())) {
    tensor_ = t.data();
  }
  Arg(const std::vector<Tensor>& t) : Arg(std::span<const Tensor>(t)) {}
  Arg(bool v) : kind_(Kind::boolean) { integer_ = v; }
  Arg(int v) : Arg(int64_t(v)) {}
  Arg(int64_t v) : kind_(Kind::integer) { integer_ = v; }
  Arg(double v) : kind_(Kind::real) { real_ = v; }
  Arg(const Scalar& s) : kind_(Kind::scalar) { scalar_ = &s; }
  Arg(IntList l) : kind_(Kind::ints), count_(uint32_t(l.size())) { ints_ = l.data(); }
  Arg(const Shape& l) : Arg(IntList(l)) {}
  Arg(std::span<const double> l) : kind_(Kind::reals), count_(uint32_t(l.size())) {
    reals_ = l.data();
  }
  Arg(const std::vector<double>& l) : Arg(std::span<const double>(l)) {}
  Arg(std::string_view s) : kind_(Kind::string), count_(uint32_t(s.size())) { chars_ = s.data(); }
  Arg(const char* s) : Arg(std::string_view(s)) {}
  Arg(DType t) : kind_(Kind::dtype) { integer_ = int64_t(t); }
  Arg(Device d) : kind_(Kind::device), device_(d.resolved()) {}
  Arg(Generator* g) : kind_(g ? Kind::generator : Kind::none) { generator_ = g; }
  Arg(const AppliedProgram& p) : kind_(Kind::program) { program_ = &p; }
  template <class T>
  Arg(const std::optional<T>& o) : Arg() {
    if (o) *this = Arg(*o);
  }

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::none; }
  const Tensor& tensor() const { return *tensor_; }  // may be undefined when kind is none
  std::span<const Tensor> tensors() const { return {tensor_, count_}; }
  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }
  double real() const {
    return kind_ == Kind::integer  ? double(integer_)
           : kind_ == Kind::scalar ? scalar_->to_double()
                                   : real_;
  }
  Scalar scalar() const {
    switch (kind_) {
      case Kind::scalar:
        return *scalar_;
      case Kind::real:
        return Scalar(real_);
      case Kind::boolean:
        return Scalar(integer_ != 0);
      default:
        return Scalar(integer_);
    }
  }
  IntList ints() const { return IntList(ints_, count_); }
  std::span<const double> reals() const { return {reals_, count_}; }
  std::string_view string() const { return {chars_, count_}; }
  DType dtype() const { return DType(integer_); }
  Device device() const { return device_; }
  const AppliedProgram& program() const { return *program_; }
  Generator* generator() const { return kind_ == Kind::generator ? generator_ : nullptr; }

 private:
  Kind kind_ = Kind::none;
  Device device_{};
  uint32_t count_ = 0;
  union {
    const Tensor* tensor_ = nullptr;
    const Scalar* scalar_;
    const int64_t* ints_;
    const double* reals_;
    const char* chars_;
    Generator* generator_;
    const AppliedProgram* program_;
    int64_t integer_;
    double real_;
  };
};

/// A call as a record's functions see it. Arguments are numbered as in the schema.
class Call {
 public:
  Call(const OpRecord& op_in, std::span<const Arg> args, bool in_place = false)
      : op(op_in), args_(args), in_place_(in_place) {}
  const OpRecord& op;
  const Arg& operator[](size_t i) const { return args_[i]; }
  size_t size() const { return args_.size(); }
  std::span<const Arg> args() const { return args_; }
  bool has(size_t i) const { return i < args_.size() && !args_[i].is_none(); }
  const Tensor& tensor(size_t i) const { return args_[i].tensor(); }
  std::span<const Tensor> tensors(size_t i) const { return args_[i].tensors(); }
  int64_t integer(size_t i) const { return args_[i].integer(); }
  bool boolean(size_t i) const { return args_[i].boolean(); }
  double real(size_t i) const { return args_[i].real(); }
  Scalar scalar(size_t i) const { return args_[i].scalar(); }
  IntList ints(size_t i) const { return args_[i].ints(); }
  std::span<const double> reals(size_t i) const { return args_[i].reals(); }
  /// The output is argument 0 itself: lower() finds its old values there.
  bool in_place() const { return in_place_; }
  const char* name() const;

 private:
  std::span<const Arg> args_;
  bool in_place_;
};

/// What infer() says about one output.
struct OutputSpec {
  Shape sizes;
  DType dtype = kFloat32;
  std::optional<Shape> strides{};  ///< default: row-major
  /// Default: that of the call's tensors, the CPU if it has none. Set once infer() has returned.
  std::optional<Device> device{};
};
using OutputSpecs = SmallVector<OutputSpec, 2>;

using Results = TensorList;

/// What a gradient formula sees. Inputs count all tensors of the call in order (tensor lists
/// flattened, absent optional tensors counted as one undefined).
class GradCall {
 public:
  virtual ~GradCall() = default;
  /// Gradient of output i; undefined if nothing arrived.
  virtual const Tensor& grad(size_t i = 0) const = 0;
  /// Saved tensors: available only if the record's saves() names them.
  virtual Tensor input(size_t i) const = 0;
  virtual Tensor output(size_t i = 0) const = 0;
  /// Always available.
  virtual IntList input_sizes(size_t i) const = 0;
  virtual DType input_dtype(size_t i) const = 0;
  virtual Device input_device(size_t i) const = 0;
  virtual bool has_input(size_t i) const = 0;
  virtual size_t input_count() const = 0;
  virtual bool needs(size_t i) const = 0;
  /// Attributes: the non-tensor arguments, by schema position.
  virtual const Arg& arg(size_t i) const = 0;
  int64_t integer(size_t i) const { return arg(i).integer(); }
  bool boolean(size_t i) const { return arg(i).boolean(); }
  double real(size_t i) const { return arg(i).real(); }
  Scalar scalar(size_t i) const { return arg(i).scalar(); }
  IntList ints(size_t i) const { return arg(i).ints(); }
};

/// What autocast does with an operator's floating tensor arguments.
enum class Autocast : uint8_t {
  none,
  lower,
  f32,
  promote,
  banned,  ///< an error
  as_is,   ///< nothing here, but for the calls that the operator makes
};

/// Where a language binding shows an operator.
enum class Surface : uint8_t {
  method,      ///< a function, and a method if its first argument is a tensor
  function,    ///< a function only
  functional,  ///< in nn.functional only
  internal,    ///< a building block of other operators; nowhere
};

/// An argument that owns what it holds: of a sample, or a default.
struct OwnedArg {
  Arg::Kind kind = Arg::Kind::none;
  Tensor tensor;
  std::vector<Tensor> tensors;
  Scalar scalar;
  std::vector<int64_t> ints;
  std::vector<double> reals{};
  std::string text;
  DType dtype = kFloat32;
  Device device;
  OwnedArg();
  OwnedArg(Tensor t);
  OwnedArg(std::vector<Tensor> t);
  OwnedArg(bool v);
  OwnedArg(int v);
  OwnedArg(int64_t v);
  OwnedArg(double v);
  OwnedArg(Scalar v);
  OwnedArg(std::initializer_list<int64_t> v);
  OwnedArg(std::vector<int64_t> v);
  OwnedArg(std::vector<double> v);
  OwnedArg(const char* v);
  OwnedArg(DType v);
  OwnedArg(Device v);
  OwnedArg(std::nullopt_t) {}
  // Not inline: they stand wherever samples are listed.
  OwnedArg(const OwnedArg&);
  OwnedArg(OwnedArg&&) noexcept;
  OwnedArg& operator=(const OwnedArg&);
  OwnedArg& operator=(OwnedArg&&) noexcept;
  ~OwnedArg();
  Arg borrow() const;
};

/// What a pointwise operator does with complex numbers, said of their parts (Note [Complex tensors]
/// in complex_call.cpp; complex_form.h has short ways to make one).
struct ComplexForm {
  /// Inputs, then parameters, each as real and imaginary part. One output: a real or boolean
  /// result. Two: a complex one.
  expr::Definition definition;
  /// As PointwiseDef::gradient, of the parts; null: the symbolic derivative.
  expr::Definition gradient{};
  uint32_t pairs = ~0u;  ///< bit i: input i is complex (masks and conditions are not)
  /// A shorter way, of a call that promotes to a dtype; no results: the call is not of those.
  Results (*shortcut)(const Call&, DType promoted) = nullptr;
};

/// The pointwise part of a record.
struct PointwiseDef {
  int n_inputs = 1;
  int n_params = 0;  ///< scalars that follow the tensors in the schema
  expr::Definition definition;
  enum class Result : uint8_t {
    promote,   ///< the promoted type
    floating,  ///< the promoted type, integers become default_dtype()
    boolean,
  } result = Result::promote;
  bool compute_promoted = true;  ///< inputs are cast to the promoted type first
  /// Replaces the symbolic derivative: (inputs..., outputs..., grads..., params...) -> one adjoint
  /// per input; unused ones are dropped.
  expr::Definition gradient;
  /// The same by results, for calls in place whose parameters are not negative: the inputs that
  /// they write over need no copy.
  expr::Definition in_place_gradient;
  uint32_t non_differentiable = 0;  ///< bit i: input i has no gradient
  /// Bit i: asking for the gradient of input i is an error, which names `no_derivative`.
  uint32_t refused_gradients = 0;
  const char* no_derivative = nullptr;
  uint32_t exact_numbers = 0;  ///< bit i: input i is no number that integers cannot hold
  /// Bit i: a number that is input i, or parameter i - n_inputs, becomes one of halves beside them,
  /// as in PyTorch. Comparisons do so with each.
  uint32_t rounded_numbers = 0;
  /// Stands for `definition` where halves decide about more than roundings: (inputs, the half).
  std::vector<expr::Value> (*of_halves)(std::span<const expr::Value>, DType) = nullptr;
  /// Of an operator without parameters, an input: a small multiple of a half there is a constant of
  /// its program, which the definition may look at. -1: none.
  int constant_number = -1;
  bool truncates = false;  ///< parameters beside integers lose their fractions; else refused
  void (*check)(const Call&) = nullptr;  ///< refuses arguments; tensors may be numbers
  std::optional<ComplexForm> complex{};  ///< none: refuses complex tensors
  struct Cache;
  std::shared_ptr<Cache> cache;
};

/// Of an operator that touches a tensor only where indices say: what it moves is counted by those.
struct IndexedAccess {
  size_t argument = 0;  ///< of the tensor
  /// It is written there: that holds for the in-place form, the other one copies the whole tensor.
  bool writes = false;
  /// How many of its elements are touched; null: one for each element of the result.
  int64_t (*places)(const Call&) = nullptr;
};

/// How calls of a record run for a whole batch of them (Note [Batching rules] in
/// ops/vmap_rules_internal.h). Pointwise records, views, records with infer that name their
/// dimensions or take no tensor, and compositions that look at no value need to say nothing.
struct Batching {
  Results (*rule)(const vmaps::Rewriting&) = nullptr;  ///< of a view, or with infer
  /// In place of a rule: why each element of the batch has a call of its own. A composition that is
  /// called so is called with values: it has no gradient.
  const char* one_by_one = nullptr;
  /// Of a record that draws nothing: whether a call makes random numbers of the seed that it is
  /// given.
  bool (*is_seeded)(const Call&) = nullptr;
};

/// The record. Exactly one of pointwise, view, compose, apply or (infer and lower) is set.
struct OpRecord {
  std::string schema;  ///< "add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
  std::string name;
  /// Of several records with one name: "dim" of "max.dim(Tensor input, int dim, ...) -> ...".
  std::string overload{};
  std::string doc;
  /// "max.dim": what find_record() takes. No other record has it.
  std::string full_name() const { return overload.empty() ? name : name + "." + overload; }

  std::shared_ptr<PointwiseDef> pointwise;
  /// A view operator: the layout of the result from that of argument 0.
  Layout (*view)(const Call&) = nullptr;
  /// Bit i: argument i of a view counts elements from the begin of the storage.
  uint32_t storage_offsets = 0;
  /// Several views at once (split, unbind, ...).
  std::vector<Layout> (*views)(const Call&) = nullptr;
  /// The dtype in which a view shows memory of another; null: the same.
  DType (*view_dtype)(DType) = nullptr;
  /// Of an anonymous record: applies the program that the call brings as its first argument.
  Results (*apply)(const Call&) = nullptr;
  /// A composition of other operators, differentiated through them.
  Results (*compose)(const Call&) = nullptr;
  /// Pure: shapes, dtypes and device of the outputs. Checks everything users can get wrong.
  void (*infer)(const Call&, OutputSpecs&) = nullptr;
  /// The primitive calls that fill the outputs.
  void (*lower)(const Call&, std::span<const Tensor> outputs, prim::Primitives&) = nullptr;

  /// Stands for the operator where argument 0 is complex, for which it has no kernels.
  Results (*compose_complex)(const Call&) = nullptr;

  /// The gradient in operators: one tensor per input (undefined where not needed or none).
  TensorList (*grad)(const GradCall&) = nullptr;
  uint64_t save_inputs = 0, save_outputs = 0;  ///< bit i: GradCall::input(i) / output(i) is used
  uint32_t non_differentiable_outputs = 0;     ///< bit i: output i has no gradient (indices, ...)
  /// The in-place form computes into a temporary and copies back.
  bool in_place_by_copy = false;
  bool has_in_place = false;
  /// The in-place form of a composition, made of such forms; null: its result is copied back.
  void (*compose_in_place)(Tensor& self, const Call&) = nullptr;
  bool random = false;         ///< draws from a generator
  bool uninitialized = false;  ///< the result holds whatever the memory held
  /// out= may have another dtype than the result, as it may for pointwise records and those with a
  /// dtype argument.
  bool converts_out = false;
  /// out= of as many elements as the result keeps its shape.
  bool keeps_out_shape = false;

  Autocast autocast = Autocast::none;
  Surface surface = Surface::method;
  /// More signatures under which bindings show it, of its own or another name:
  /// "max.other(Tensor self, Tensor other)". One with the record's full name stands in place of the
  /// schema; one whose name ends in "_" is a form in place.
  std::vector<std::string_view> faces{};
  /// What nn.functional has of it: signatures, or names with arguments made from the schema; "" is
  /// the record's own name, which those of Surface::functional have in any case.
  std::vector<std::string_view> functional{};
  /// layout= may be a sparse one: a tensor without elements has no values that could differ.
  bool takes_sparse_layout = false;
  /// Makes a tensor in the order of memory that memory_format= names.
  bool takes_memory_format = false;
  std::optional<IndexedAccess> indexed{};
  /// Bindings take a number where a tensor is wanted: pointwise operators of several tensors always
  /// do.
  bool takes_numbers = false;
  Batching batching{};
  /// Files may call it although it is internal: it checks its arguments as what users call does.
  bool for_files = false;
  /// Tensors of its list may be undefined: positions that nothing indexes.
  bool takes_gaps = false;
  /// Its lowering takes tensors of several devices; others get theirs on one, or the call fails.
  bool across_devices = false;
  /// FLOPs of one call; null: one per output element (pointwise: the program's).
  double (*flops)(const Call&) = nullptr;

  /// Dtypes that samples are made for; default: f32 f64 bf16 f16 for floating operators.
  std::vector<DType> dtypes{kFloat32, kFloat64, kBFloat16, kFloat16};
  bool once_differentiable = false;  ///< the gradient has no gradient (said in the doc)
};

/// Chained construction of a record; registers it. Kept as a static in the record's file:
///   static const OpRecord& relu_op = define("relu(Tensor self) -> Tensor")
///       .doc("max(self, 0).").pointwise(...);
class Definer {
 public:
  explicit Definer(OpRecord& r) : r_(r) {}
  /// The record is complete: BugError if it holds what its kind ignores.
  operator const OpRecord&() const;
  Definer& doc(std::string_view text);
  Definer& view(Layout (*f)(const Call&)) {
    r_.view = f;
    return *this;
  }
  /// See OpRecord::storage_offsets.
  Definer& storage_offsets(uint32_t bits) {
    r_.storage_offsets = bits;
    return *this;
  }
  Definer& views(std::vector<Layout> (*f)(const Call&)) {
    r_.views = f;
    return *this;
  }
  Definer& view_dtype(DType (*f)(DType)) {
    r_.view_dtype = f;
    return *this;
  }
  Definer& compose(Results (*f)(const Call&)) {
    r_.compose = f;
    return *this;
  }
  Definer& infer(void (*f)(const Call&, OutputSpecs&)) {
    r_.infer = f;
    return *this;
  }
  Definer& lower(void (*f)(const Call&, std::span<const Tensor>, prim::Primitives&)) {
    r_.lower = f;
    return *this;
  }
  /// saves: bits of inputs and outputs the formula reads.
  Definer& grad(TensorList (*f)(const GradCall&), uint64_t save_inputs = 0,
                uint64_t save_outputs = 0) {
    r_.grad = f;
    r_.save_inputs = save_inputs;
    r_.save_outputs = save_outputs;
    return *this;
  }
  Definer& no_grad_outputs(uint32_t bits) {
    r_.non_differentiable_outputs = bits;
    return *this;
  }
  Definer& in_place(bool by_copy = false) {
    r_.has_in_place = true;
    r_.in_place_by_copy = by_copy;
    return *this;
  }
  Definer& in_place(void (*f)(Tensor& self, const Call&)) {
    r_.compose_in_place = f;
    return in_place();
  }
  Definer& random() {
    r_.random = true;
    return *this;
  }
  Definer& uninitialized() {
    r_.uninitialized = true;
    return *this;
  }
  Definer& converts_out() {
    r_.converts_out = true;
    return *this;
  }
  Definer& keeps_out_shape() {
    r_.keeps_out_shape = true;
    return *this;
  }
  Definer& autocast(Autocast a) {
    r_.autocast = a;
    return *this;
  }
  Definer& surface(Surface s) {
    r_.surface = s;
    return *this;
  }
  Definer& face(std::string_view signature) {
    r_.faces.push_back(signature);
    return *this;
  }
  Definer& functional(std::vector<std::string_view> shown = {""}) {
    r_.functional = std::move(shown);
    return *this;
  }
  Definer& sparse_layout() {
    r_.takes_sparse_layout = true;
    return *this;
  }
  Definer& memory_format() {
    r_.takes_memory_format = true;
    return *this;
  }
  Definer& indexed(IndexedAccess access) {
    r_.indexed = access;
    return *this;
  }
  Definer& takes_numbers() {
    r_.takes_numbers = true;
    return *this;
  }
  Definer& across_devices() {
    r_.across_devices = true;
    return *this;
  }
  /// See Batching.
  Definer& batched(Results (*rule)(const vmaps::Rewriting&)) {
    r_.batching.rule = rule;
    return *this;
  }
  Definer& one_by_one(const char* why) {
    r_.batching.one_by_one = why;
    return *this;
  }
  Definer& seeded(bool (*is_seeded)(const Call&)) {
    r_.batching.is_seeded = is_seeded;
    return *this;
  }
  Definer& for_files() {
    r_.for_files = true;
    return *this;
  }
  Definer& takes_gaps() {
    r_.takes_gaps = true;
    return *this;
  }
  Definer& flops(double (*f)(const Call&)) {
    r_.flops = f;
    return *this;
  }
  Definer& dtypes(std::vector<DType> d);
  Definer& once_differentiable() {
    r_.once_differentiable = true;
    return *this;
  }
  Definer& pointwise(PointwiseDef d);
  /// Shorthands: a lambda of n Values (inputs, then params).
  Definer& unary(expr::Value (*f)(expr::Value),
                 PointwiseDef::Result r = PointwiseDef::Result::floating);
  Definer& binary(expr::Value (*f)(expr::Value, expr::Value),
                  PointwiseDef::Result r = PointwiseDef::Result::promote);
  /// Override of the symbolic derivative (see PointwiseDef::gradient).
  Definer& gradient(expr::Definition d);
  Definer& complex(ComplexForm f);
  /// See PointwiseDef::refused_gradients.
  Definer& no_derivative(uint32_t bits, const char* name) {
    r_.pointwise->refused_gradients = bits;
    r_.pointwise->no_derivative = name;
    return *this;
  }
  /// See PointwiseDef::exact_numbers.
  Definer& exact_numbers(uint32_t bits) {
    r_.pointwise->exact_numbers = bits;
    return *this;
  }
  /// See PointwiseDef::rounded_numbers.
  Definer& rounded_numbers(uint32_t bits) {
    r_.pointwise->rounded_numbers = bits;
    return *this;
  }
  /// See PointwiseDef::of_halves.
  Definer& of_halves(std::vector<expr::Value> (*f)(std::span<const expr::Value>, DType)) {
    r_.pointwise->of_halves = f;
    return *this;
  }
  /// See PointwiseDef::constant_number.
  Definer& constant_number(int input) {
    r_.pointwise->constant_number = input;
    return *this;
  }
  /// See PointwiseDef::truncates.
  Definer& truncates() {
    r_.pointwise->truncates = true;
    return *this;
  }
  /// See PointwiseDef::check.
  Definer& refuses(void (*f)(const Call&)) {
    r_.pointwise->check = f;
    return *this;
  }
  /// See OpRecord::compose_complex; for records with infer.
  Definer& complex(Results (*f)(const Call&)) {
    r_.compose_complex = f;
    return *this;
  }

 private:
  OpRecord& r_;
};

/// Adds a record; the full name is the part of the schema before "(" and must be new.
Definer define(std::string_view schema);
/// All records in order of full names.
std::vector<const OpRecord*> all_records();
/// By full name or alias; null if there is none.
const OpRecord* find_record(std::string_view name);

/// A parsed schema argument: name, type as written ("Tensor?", "int[]"), default text.
struct SchemaArg {
  std::string name, type, default_text;
  bool keyword_only = false;
  bool is_tensor() const { return type == "Tensor" || type == "Tensor?" || type == "Tensor[]"; }
};
struct Schema {
  std::vector<SchemaArg> args;
  std::vector<std::string> returns;
};
/// Of a text that may be anything, with "-> ..." or, as a face, without: nothing if it is
/// malformed.
std::optional<Schema> parse_schema(std::string_view text);
/// Parsed on first use; BugError for a malformed schema.
const Schema& schema_of(const OpRecord& op);

// Note [Families]
// Records are static objects of their file. So that a static library keeps them, every file of
// records is a family: it ends with ARETE_FAMILY(name), and ops/families.cpp names the families
// (files, not operators) in one list that registration walks before the first look-up.
#define ARETE_FAMILY(name) \
  namespace arete::ops {   \
  void family_##name() {}  \
  }

}  // namespace arete::ops
