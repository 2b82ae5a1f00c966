// What became of a compiled function: as data, text, JSON and a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "arete/compile/compile.h"

namespace arete::compile {

/// Memory that steps of a plan use.
struct ExplainedBuffer {
  enum class Kind : uint8_t {
    given,      ///< was there before: inputs, parameters, state, also where it is written
    result,     ///< made by the plan and kept
    temporary,  ///< in the arena, while it is used
  };
  std::string text;  ///< "float32[64, 256]", as it is used first
  Kind kind = Kind::given;
  size_t bytes = 0;
  int first = 0, last = 0;  ///< steps that use it
};

/// A kernel, or a call of a library.
struct ExplainedStep {
  std::string text;                    ///< "pointwise(float32[2, 3] -> float32[2, 3])"
  std::vector<int> calls;              ///< that it does, by their numbers in the trace
  std::vector<std::string> operators;  ///< whose calls these are
  std::string where;                   ///< line of the program of the first one, if known
  std::vector<int> reads, writes;      ///< buffers
  size_t bytes_read = 0, bytes_written = 0;
  size_t bytes_before = 0;                        ///< that the calls read and wrote
  size_t live_temporaries = 0, live_results = 0;  ///< bytes that are needed after it
};

/// A step that reads what another one made, or reads the same, and is a kernel of its own.
struct ExplainedApart {
  int earlier = 0, later = 0;  ///< steps
  size_t bytes = 0;            ///< of what they share: it goes through memory
  std::string reason;
};

struct ExplainedKernel {
  int step = 0;
  std::string name;
  double seconds = 0;
};

/// A plan for a trace, for one choice of what is kept of its results.
struct ExplainedPlan {
  PlanStats stats;
  int64_t runs = 0;
  double planning = 0, launching = 0;  ///< seconds of the host, all runs together
  int left_out = 0;                    ///< calls that no step does: nobody reads their results
  size_t given = 0;                    ///< bytes of memory that was there before
  std::vector<ExplainedStep> steps;
  std::vector<ExplainedBuffer> buffers;
  std::vector<ExplainedApart> apart;
  bool is_graph = false;
  std::string why_no_graph;
  std::vector<ExplainedKernel> kernels;  ///< compiled in its first run, by this process
};

/// A list of calls between two looks at values.
struct ExplainedTrace {
  int number = 0;   ///< from 1
  int segment = 0;  ///< looks before it in one call of the function; -1: a backward pass outside
  int calls = 0;
  int64_t runs = 0;
  int nearest = 0;      ///< the earlier trace that begins most like it; 0: there is none
  int call = 0;         ///< the first call that differs from that one's
  std::string changed;  ///< how: "mul: input 1 float32[64, 784] became float32[32, 784]"
  std::string where;    ///< line of that call, if known
  std::vector<ExplainedPlan> plans;
};

struct ExplainedBreak {
  Break look;
  std::string advice;
};

struct Explanation {
  std::string name;
  bool exact = false;
  CompileStats stats;
  std::string skipping;                ///< whether the function is skipped, and why not
  std::vector<ExplainedBreak> breaks;  ///< the most frequent first
  std::vector<ExplainedTrace> traces;  ///< those that are kept: the 64 used last
};

/// What is known now. Other threads may run the function meanwhile.
Explanation explanation_of(const Program& program);

/// For people: what to act on first, then plans with the steps that move most.
std::string to_text(const Explanation& e);
/// All of it: {"functions": [...]}, in the names of these structs.
std::string to_json(std::span<const Explanation> functions);
/// A page that needs nothing else: plans drawn, memory over their steps, tables.
std::string to_html(std::span<const Explanation> functions);

inline std::string explain_json(const Program& program) {
  const Explanation e = explanation_of(program);
  return to_json({&e, 1});
}
inline std::string explain_html(const Program& program) {
  const Explanation e = explanation_of(program);
  return to_html({&e, 1});
}

}  // namespace arete::compile
