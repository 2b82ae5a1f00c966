// What backends share of recurrences (RecurrenceArgs).
#pragma once

#include <array>

#include "arete/prim/args.h"

namespace arete::prim {

/// Bytes from one step, row and state of an operand to the next; 0 where it is the same for all.
std::array<int64_t, 3> strides_of(const RecurrenceArgs& args, const View& operand);

/// The program for states of several rows in one table, which takes two or three more inputs (i64):
/// where the table has the row's first state, and, of rows with lengths, their lengths. It then
/// leaves the states of steps beyond them alone. Kept for the process.
const expr::Program& program_of_rows(const expr::Program& program, bool lengths);

/// A program in two parts, so that the first can run before the states are known.
struct SplitProgram {
  /// Values that do not depend on states, from the program's inputs.
  expr::ProgramPtr ahead;
  /// The program's outputs from its first four inputs, its other tables and those values.
  expr::ProgramPtr rest;
};
SplitProgram split_by_state(const expr::Program& program);

}  // namespace arete::prim
