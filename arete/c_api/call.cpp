// Operators by their names.
#include <algorithm>
#include <complex>

#include "arete/c_api/handles_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/schema_values.h"

using namespace arete;
using namespace arete::c_api;

namespace {

using Kind = ops::Arg::Kind;

struct Named {
  const ops::OpRecord* op;
  bool in_place;
};

// The record of a name; "add_" is the form in place of "add".
Named find_operator(const char* name) {
  const std::string_view s = &given(name, "op");
  const ops::OpRecord* op = ops::find_record(s);
  bool in_place = false;
  if (!op && s.ends_with('_')) {
    op = ops::find_record(s.substr(0, s.size() - 1));
    in_place = true;
    ARETE_CHECK(!op || op->has_in_place, ValueError(op->name, "the operator has no form in place"));
  }
  ARETE_CHECK(op && ops::may_be_named(*op),
              ValueError("", "there is no operator of this name")
                  .got("'" + std::string(s) + "'")
                  .hint("arete_operator_names() lists them; of several with one name each has its "
                        "own: max, max.dim"));
  return {op, in_place};
}

std::string kind_text(int32_t kind) {
  static constexpr const char* kNames[] = {
      "none",     "a tensor", "tensors",  "a bool",  "an integer", "a float", "a complex number",
      "integers", "floats",   "a string", "a dtype", "a device"};
  return kind >= 0 && kind <= ARETE_ARG_DEVICE ? kNames[kind] : "kind " + std::to_string(kind);
}

// The arguments of a call in the order of the schema; keeps what they borrow.
class Arguments {
 public:
  Arguments(const ops::OpRecord& op, std::span<const arete_arg> args) : op_(op) {
    const std::vector<ops::SchemaArg>& schema = ops::schema_of(op).args;
    const size_t n = schema.size();
    std::vector<const arete_arg*> places(n);
    bool named = false;
    for (size_t i = 0; i < args.size(); ++i) {
      size_t at = i;
      named = named || args[i].name;
      if (args[i].name) {
        at =
            size_t(std::ranges::find(schema, args[i].name, &ops::SchemaArg::name) - schema.begin());
        ARETE_CHECK(at < n, ValueError(op.name, "there is no argument of this name")
                                .got("'" + std::string(args[i].name) + "'")
                                .hint(op.schema));
      }
      ARETE_CHECK(args[i].name || !named,
                  ValueError(op.name, "an argument by position follows one by name"));
      ARETE_CHECK(at < n, ValueError(op.name, "there are too many arguments")
                              .expected("at most " + std::to_string(n))
                              .got(std::to_string(args.size()))
                              .hint(op.schema));
      ARETE_CHECK(!places[at],
                  ValueError(op.name, "an argument is given twice").argument(schema[at].name));
      places[at] = &args[i];
    }
    args_.resize(n), lists_.reserve(n), scalars_.reserve(n), defaults_.reserve(n);
    for (size_t i = 0; i < n; ++i) args_[i] = argument(places[i], schema[i], i);
  }
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  std::span<const ops::Arg> get() const { return args_; }

 private:
  ops::Arg argument(const arete_arg* a, const ops::SchemaArg& s, size_t position) {
    std::string_view type(s.type);
    const bool optional = type.ends_with('?');
    if (optional) type.remove_suffix(1);
    const bool none =
        a && (a->kind == ARETE_ARG_NONE || (a->kind == ARETE_ARG_TENSOR && !a->as.tensor));
    if (!a || (none && !optional)) {
      ARETE_CHECK(optional || !s.default_text.empty(),
                  ValueError(op_.name, "an argument is missing").argument(s.name).hint(op_.schema));
      if (s.default_text.empty() || s.default_text == "None") return undefined();
      return defaults_.emplace_back(ops::default_of(ops::kind_of(type), s.default_text)).borrow();
    }
    if (none) return undefined();
    const ops::Arg value = read(*a, s);
    ARETE_CHECK(ops::takes(op_, position, type, value.kind()),
                TypeError(op_.name, "an argument is of another kind than the schema says")
                    .argument(s.name)
                    .expected(s.type)
                    .got(kind_text(a->kind)));
    return value;
  }

  // Where a tensor is looked for, an undefined one is found.
  static ops::Arg undefined() {
    static const Tensor none;
    return ops::Arg(none);
  }

  template <class T>
  std::span<const T> list(const arete_arg& a, const ops::SchemaArg& s) {
    ARETE_CHECK(a.as.list.count <= UINT32_MAX,
                ValueError(op_.name, "a list is too long").argument(s.name));
    return list_of(static_cast<const T*>(a.as.list.data), a.as.list.count, s.name.c_str());
  }

  ops::Arg read(const arete_arg& a, const ops::SchemaArg& s) {
    switch (a.kind) {
      case ARETE_ARG_TENSOR:
        return ops::Arg(a.as.tensor->value);
      case ARETE_ARG_TENSORS: {
        const auto handles = list<const arete_tensor*>(a, s);
        return ops::Arg(lists_.emplace_back(
            tensors_of(handles.data(), handles.size(), s.name.c_str(), op_.takes_gaps)));
      }
      case ARETE_ARG_BOOL:
        return ops::Arg(a.as.integer != 0);
      case ARETE_ARG_INT:
        return ops::Arg(a.as.integer);
      case ARETE_ARG_FLOAT:
        return ops::Arg(a.as.real[0]);
      case ARETE_ARG_COMPLEX:
        return ops::Arg(scalars_.emplace_back(std::complex<double>(a.as.real[0], a.as.real[1])));
      case ARETE_ARG_INTS: {
        const auto values = list<int64_t>(a, s);
        return ops::Arg(IntList(values.data(), values.size()));
      }
      case ARETE_ARG_FLOATS:
        return ops::Arg(list<double>(a, s));
      case ARETE_ARG_STRING:
        return ops::Arg(&given(a.as.string, s.name.c_str()));
      case ARETE_ARG_DTYPE:
        return ops::Arg(dtype_of_code(a.as.integer));
      case ARETE_ARG_DEVICE:
        return ops::Arg(Device(&given(a.as.string, s.name.c_str())));
      default:
        throw TypeError(op_.name, "an argument is of no kind that there is")
            .argument(s.name)
            .got(kind_text(a.kind));
    }
  }

  const ops::OpRecord& op_;
  std::vector<ops::Arg> args_;
  std::vector<std::vector<Tensor>> lists_;
  std::vector<Scalar> scalars_;
  std::vector<ops::OwnedArg> defaults_;
};

}  // namespace

arete_status arete_call(const char* op, const arete_arg* args, size_t n_args,
                        arete_tensor** results, size_t* count) {
  return guarded([&] {
    const Named named = find_operator(op);
    const Arguments arguments(*named.op, list_of(args, n_args, "args"));
    list_of(results, given(count, "count"), "results");
    const auto all = arguments.get();
    // Of pointwise operators one argument at least is a tensor: it says where and how they run.
    ARETE_CHECK(!(named.op->pointwise || named.op->takes_numbers) ||
                    std::ranges::count(all, Kind::tensor, &ops::Arg::kind),
                TypeError(named.op->name, "one argument at least must be a tensor"));
    if (!named.in_place) {
      const ops::Results made = ops::call_all(*named.op, all);
      return give({made.data(), made.size()}, results, count);
    }
    ARETE_CHECK(!all.empty() && all[0].kind() == Kind::tensor,
                TypeError(named.op->name, "a call in place needs a tensor to write to"));
    ARETE_CHECK(*count >= 1, ValueError("", "there is no room for the result"));
    Tensor self = all[0].tensor();
    ops::call_in_place(self, *named.op, all);
    give({&self, 1}, results, count);
  });
}

arete_status arete_operator_schema(const char* op, const char** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    result = find_operator(op).op->schema.c_str();
  });
}

arete_status arete_operator_names(const char* const** names, size_t* count) {
  return guarded([&] {
    auto& list = given(names, "names");
    auto& length = given(count, "count");
    static const auto* const all = [] {
      auto* const found = new std::vector<const char*>;
      static std::vector<std::string> texts;
      for (const ops::OpRecord* op : ops::all_records())
        if (ops::may_be_named(*op)) texts.push_back(op->full_name());
      std::ranges::sort(texts);
      for (const std::string& t : texts) found->push_back(t.c_str());
      return found;
    }();
    list = all->data();
    length = all->size();
  });
}
