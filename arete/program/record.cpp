// Program::record: which sizes a function is recorded with.
#include <algorithm>
#include <map>
#include <set>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/shape.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

// Where a size stands: the dimension is factor * size + offset.
struct Place {
  size_t input;
  int64_t dim;
  int64_t factor = 1, offset = 0;
};

// A size that differs, with the places of inputs where it stands and the size of the examples.
struct Symbol {
  SizeInfo info;
  int64_t example = 0;
  std::vector<Place> places{};
};

// Four sizes to record with, or three: the example's, if it is no special one, and others. With
// size 1 everything would broadcast.
std::vector<int64_t> some_sizes(const Symbol& s) {
  std::vector<int64_t> found;
  const int64_t n = s.example;
  for (const int64_t least : {int64_t(2), int64_t(1)}) {
    found.clear();
    for (const int64_t v :
         {n, n + 1, n + 3, n - 1, n + 2, n - 2, n - 3, s.info.min, s.info.min + 1, s.info.min + 2})
      if (v >= least && v >= s.info.min && v <= s.info.max &&
          std::ranges::find(found, v) == found.end() && found.size() < 4)
        found.push_back(v);
    if (found.size() >= 3) return found;
  }
  throw ValueError("program", "the dynamic size '" + s.info.name +
                                  "' has a range of fewer than "
                                  "three sizes")
      .got("[" + std::to_string(s.info.min) + ", " + std::to_string(s.info.max) + "]")
      .hint("the function is recorded with three of them; leave a size that is fixed out");
}

// A copy, with other sizes in some dimensions: values repeat.
Tensor example(const Tensor& t, const std::map<int64_t, int64_t>& sizes) {
  const NoGradGuard no_grad;
  Tensor copy = t.detach();
  for (const auto& [d, n] : sizes) {
    const int64_t had = copy.size(d);
    if (had == n) continue;
    if (had == 0) {
      Shape s(copy.sizes());
      s[size_t(d)] = n;
      copy = zeros(s, copy.options());
      continue;
    }
    const Tensor index = arange(0, n, 1, TensorOptions(kInt64, copy.device())).remainder(had);
    copy = copy.index_select(d, index);
  }
  copy = copy.clone();
  if (t.requires_grad()) copy.requires_grad_();
  return copy;
}

class Recorder {
 public:
  Recorder(const Program::Function& f, const std::vector<Tensor>& inputs,
           const RecordOptions& options)
      : f_(f), inputs_(inputs), options_(options) {}

  Body record(const std::vector<Symbol>& symbols, bool squares = false) {
    std::vector<std::vector<int64_t>> choice;
    bool may_square = true;
    for (const Symbol& s : symbols) {
      choice.push_back(some_sizes(s));
      may_square = may_square && choice.back().size() == 4;
    }
    const size_t n = symbols.size();
    std::vector<std::vector<int64_t>> points(1);
    for (size_t s = 0; s < n; ++s) points[0].push_back(choice[s][0]);
    const auto add = [&](std::initializer_list<size_t> changed) {
      points.push_back(points[0]);
      for (const size_t s : changed) points.back()[s] = choice[s][1];
    };
    for (size_t a = 0; a < n; ++a) add({a});
    for (size_t a = 0; a < n; ++a)
      for (size_t b = a + 1; b < n; ++b) add({a, b});
    const auto add_all = [&](size_t k) {
      points.push_back(points[0]);
      for (size_t s = 0; s < n; ++s) points.back()[s] = choice[s][k];
    };
    if (squares) {
      for (size_t a = 0; a < n; ++a) {
        points.push_back(points[0]);
        points.back()[a] = choice[a][2];
      }
      add_all(3);
    }
    if (n) {
      add_all(2);
      // Sizes of 1, with which others are not recorded, are checked if the examples have them.
      std::vector<int64_t> given;
      for (const Symbol& s : symbols) given.push_back(s.example);
      if (std::ranges::find(points, given) == points.end()) points.push_back(given);
    }
    std::vector<Body> bodies;
    std::vector<SizeInfo> infos;
    for (const Symbol& s : symbols) infos.push_back(s.info);
    for (const std::vector<int64_t>& point : points) {
      Sizes sizes(inputs_.size());
      for (size_t s = 0; s < n; ++s)
        for (const Place& p : symbols[s].places)
          sizes[p.input][p.dim] = p.factor * point[s] + p.offset;
      bodies.push_back(recorded(sizes));
    }
    if (!n) return std::move(bodies[0]);
    bool is_unfit = false;
    try {
      return merge(std::move(bodies), points, infos, squares, is_unfit);
    } catch (const ValueError&) {
      if (!is_unfit || squares || !may_square) throw;
    }
    return record(symbols, true);
  }

  /// The symbols that were asked for.
  std::vector<Symbol> asked() const {
    std::vector<Symbol> symbols;
    for (const DynamicSize& d : options_.dynamic) {
      ARETE_CHECK(d.input < inputs_.size(),
                  ValueError("program", "a dynamic size of an input that is not there")
                      .got(std::to_string(d.input)));
      const Tensor& t = inputs_[d.input];
      ARETE_CHECK(t.dim() > 0,
                  ValueError("program", "a dynamic size of an input without dimensions")
                      .got("'" + d.name + "' of input " + std::to_string(d.input)));
      const int64_t dim = normalize_dim(d.dim, int(t.dim()), "program");
      ARETE_CHECK(
          d.factor > 0 && (t.size(dim) - d.offset) % d.factor == 0,
          ValueError("program", "the example's size is none of those that the dynamic size '" +
                                    d.name + "' gives")
              .expected(std::to_string(d.factor) + "*" + d.name + " + " + std::to_string(d.offset))
              .got(std::to_string(t.size(dim))));
      const int64_t size = (t.size(dim) - d.offset) / d.factor;
      auto s =
          std::ranges::find_if(symbols, [&](const Symbol& x) { return x.info.name == d.name; });
      if (s == symbols.end()) {
        symbols.push_back({{d.name, d.min, d.max}, size});
        s = symbols.end() - 1;
      }
      ARETE_CHECK(s->example == size,
                  ValueError("program", "the dynamic size '" + d.name +
                                            "' is different in two inputs, but one size has one "
                                            "value")
                      .got(std::to_string(s->example) + " and " + std::to_string(size)));
      ARETE_CHECK(size >= d.min && size <= d.max,
                  ValueError("program", "the example has another size than its range says")
                      .expected("'" + d.name + "' in [" + std::to_string(d.min) + ", " +
                                std::to_string(d.max) + "]")
                      .got(std::to_string(size)));
      s->places.push_back({d.input, dim, d.factor, d.offset});
    }
    return symbols;
  }

  /// With those that the function lets differ, too.
  Body find(std::vector<Symbol> symbols) {
    std::set<std::pair<size_t, int64_t>> taken;
    for (const Symbol& s : symbols)
      for (const Place& p : s.places) taken.emplace(p.input, p.dim);
    std::map<std::pair<int64_t, int64_t>, Symbol> groups;
    for (const auto& [i, dim] : options_.maybe_dynamic) {
      ARETE_CHECK(i < inputs_.size(), ValueError("program",
                                                 "a dynamic size of an input that is "
                                                 "not there")
                                          .got(std::to_string(i)));
      const int64_t d = normalize_dim(dim, int(inputs_[i].dim()), "program");
      const int64_t size = inputs_[i].size(d);
      if (size == 0 || !taken.insert({i, d}).second) continue;
      Symbol& s = groups[{d, size}];
      s.example = size;
      s.places.push_back({i, d});
    }
    // The error that counts is the one with the sizes of the examples.
    Body best = record(symbols);
    for (const auto& [where, group] : groups) {
      const auto is_taken = [&](const std::string& name) {
        return std::ranges::any_of(symbols, [&](const Symbol& s) { return s.info.name == name; });
      };
      size_t number = symbols.size();
      while (is_taken("s" + std::to_string(number))) ++number;
      symbols.push_back(group);
      symbols.back().info.name = "s" + std::to_string(number);
      try {
        best = record(symbols);
      } catch (const std::exception&) {
        symbols.pop_back();
      }
    }
    return best;
  }

 private:
  using Sizes = std::vector<std::map<int64_t, int64_t>>;

  // A recording for these sizes of inputs, each made once.
  Body recorded(const Sizes& sizes) {
    std::vector<Tensor> given;
    std::vector<std::vector<int64_t>> key;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      given.push_back(example(inputs_[i], sizes[i]));
      key.emplace_back(given[i].sizes().begin(), given[i].sizes().end());
    }
    const auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    Body body = record_once(f_, given, options_);
    if (!options_.maybe_dynamic.empty()) known_[key] = body;
    return body;
  }

  const Program::Function& f_;
  const std::vector<Tensor>& inputs_;
  const RecordOptions& options_;
  std::map<std::vector<std::vector<int64_t>>, Body> known_;
};

// Calls that nobody needs: they write nowhere, and no result of theirs is read.
void drop_dead_calls(Body& body) {
  const int first = int(body.inputs.size() + body.constants.size());
  std::vector<char> needed(size_t(body.n_values()), 0), kept(body.calls.size(), 0);
  for (const int v : body.outputs) needed[size_t(v)] = 1;
  for (size_t k = body.calls.size(); k-- > 0;) {
    RecordedCall& c = body.calls[k];
    bool keep = is_mark(c.form) || c.form == Form::in_place || c.form == Form::out || c.writes ||
                (c.op && c.op->random);
    for (size_t r = 0; r < c.results.size(); ++r) keep = keep || needed[size_t(c.first_result) + r];
    if (!keep) continue;
    kept[k] = 1;
    for_each_value(c, [&](int v) {
      if (v >= 0) needed[size_t(v)] = 1;
    });
  }
  std::vector<int> number(size_t(body.n_values()), kUndefined);
  int next = first;
  for (int v = 0; v < first; ++v) number[size_t(v)] = v;
  std::vector<RecordedCall> calls;
  for (size_t k = 0; k < body.calls.size(); ++k) {
    if (!kept[k]) continue;
    RecordedCall& c = body.calls[k];
    for (size_t r = 0; r < c.results.size(); ++r) number[size_t(c.first_result) + r] = next++;
    for_each_value(c, [&](int& v) {
      if (v >= 0) v = number[size_t(v)];
    });
    calls.push_back(std::move(c));
  }
  for (int& v : body.outputs) v = number[size_t(v)];
  body.calls = std::move(calls);
  body.finish();
}

}  // namespace

Program Program::record(const Function& f, const std::vector<Tensor>& inputs,
                        const RecordOptions& options) {
  for (const Tensor& t : inputs)
    ARETE_CHECK(t.defined(), ValueError("program", "an example input is undefined"));
  Recorder recorder(f, inputs, options);
  const std::vector<Symbol> symbols = recorder.asked();
  auto body = std::make_shared<Body>(options.maybe_dynamic.empty() ? recorder.record(symbols)
                                                                   : recorder.find(symbols));
  body->finish();
  drop_dead_calls(*body);
  return Program(std::move(body));
}

}  // namespace arete::program
