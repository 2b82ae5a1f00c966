// Kernels in the plain C part of CUDA C++, run on the CPU: many threads of a kernel at once, one
// instruction after the other.
//
// Note [Lanes]
// A kernel's source is read into a tree whose nodes have types (lane_parser.cpp). The threads of
// one block, or of several small ones, are the lanes of a batch: each node computes an array with
// one element for each lane, so that what an instruction costs to find is paid once for many. Where
// threads part (if, loops that end at different times, return), a mask says which lanes go on, and
// only these read, write and change variables. All lanes being at one place, a barrier has nothing
// to wait for, and threads of a warp see each other's values in shuffles. Batches go to the threads
// of the pool; what they share in memory is changed by atomic operations, as on a GPU.
//
// Every access is checked: a pointer knows which argument or array it was made from, and an address
// outside of it is an IndexError that names the line and the thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arete/core/dtype.h"

namespace arete::lanes {

struct Program;
using ProgramPtr = std::shared_ptr<const Program>;

/// An argument of a launch: memory, or the bytes of a number.
struct Argument {
  const void* number = nullptr;  // null: memory
  size_t bytes = 0;              // of the number, or of the memory
  void* data = nullptr;
  DType dtype = kFloat32;  // of the memory's elements
  bool is_whole = false;   // the number, of 8 bytes: an integer of any size takes it
  bool is_plain = false;   // the memory: of elements as the kernel has them
};

/// Reads `source` and the function `name` in it. `options` are those of the compiler, of which "-D"
/// and "--define-macro" count. Programs are kept: the same text is read once. ValueError with the
/// line for what is wrong, NotImplementedError for what the language has and this does not.
ProgramPtr read(const std::string& source, const std::string& name,
                const std::vector<std::string>& options);

/// Memory of a variable of a source of which a function was read; empty if it has none of the name.
std::span<std::byte> variable_of(const std::string& source, const std::string& name,
                                 const std::vector<std::string>& options);

/// Runs all blocks; returns when they are done. TypeError for arguments that are not those of the
/// function, IndexError for accesses outside of memory.
void launch(const Program& program, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
            std::span<const Argument> arguments, size_t shared_bytes);

}  // namespace arete::lanes
