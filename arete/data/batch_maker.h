// How one batch of a loader is made, whoever makes it: the loop itself, a worker, Python.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "arete/core/generator.h"
#include "arete/data/dataset.h"

namespace arete::data {

/// Calls f(0), ..., f(n - 1), in any order and from several threads, and returns when all have
/// returned. If some threw, what the first of them threw is thrown.
using ForEach = std::function<void(int64_t n, const std::function<void(int64_t)>& f)>;
/// One after the other, in the calling thread.
void one_by_one(int64_t n, const std::function<void(int64_t)>& f);

/// What batch `number` of an epoch draws from (see Note [Random numbers of an epoch]), whoever
/// makes it and wherever a loop was resumed. The 2^32 blocks from 0 on are left to what a worker
/// draws before its first batch.
constexpr Generator::State stream_of_batch(uint64_t seed, int64_t number) {
  return {seed, (uint64_t(number) + 1) << 32};
}

/// What a batch is made with.
struct BatchContext {
  Generator& generator;     ///< for all random numbers
  const ForEach& for_each;  ///< shares with other workers what needs none
};

/// Makes a batch of the examples `indices`. Called by several threads at once.
using BatchMaker = std::function<Batch(IntList indices, BatchContext& context)>;

/// Says at which index the maker of a batch in the calling thread is, for errors; -1: at none.
void at_example(int64_t index);

/// Makes a batch of examples; the default is collate().
using Collate = std::function<Batch(const std::vector<Example>&)>;

/// Examples of a data set, changed one after the other, stacked. `pinned`: in page-locked memory,
/// for which there must be a GPU. Records no history.
BatchMaker batch_maker(DatasetPtr dataset, Transform transform = nullptr,
                       Collate collate_fn = nullptr, bool pinned = false);

/// A batch, or why there is none.
struct Made {
  Batch batch;
  std::exception_ptr error;
  int64_t example = -1;  ///< the index at which the error was thrown; -1: at none of them

  /// The batch. Throws the error; if it is one of Arete's, its message says the example and
  /// `where`.
  Batch get(const std::string& where = {});
};
Made try_to_make(const BatchMaker& maker, IntList indices, Generator& generator,
                 const ForEach& for_each);
/// From the batch's own stream, which is also the thread's default one meanwhile.
Made make_batch(const BatchMaker& maker, IntList indices, uint64_t seed, int64_t number,
                Generator& generator, const ForEach& for_each);

}  // namespace arete::data
