#include "arete/data/batch_maker.h"

#include <algorithm>
#include <array>
#include <utility>

#include "arete/core/modes.h"
#include "arete/core/thread_generator.h"
#include "arete/ops/pinned.h"

namespace arete::data {

namespace {

// Of the examples of a slow data set few enough are held at a time that large pictures neither fill
// memory nor leave the cache.
constexpr int64_t kTogether = 32;

thread_local constinit int64_t example_at_work = -1;

}  // namespace

void at_example(int64_t index) { example_at_work = index; }

void one_by_one(int64_t n, const std::function<void(int64_t)>& f) {
  for (int64_t i = 0; i < n; ++i) f(i);
}

BatchMaker batch_maker(DatasetPtr dataset, Transform transform, Collate collate_fn, bool pinned) {
  const auto pin = [pinned](Batch batch) {
    if (pinned)
      for (Tensor& t : batch)
        if (t.device().is_cpu()) t = t.pin_memory();
    return batch;
  };
  const bool slow = dataset->is_slow();
  if (!slow && !transform && !collate_fn)
    return [dataset = std::move(dataset), pin](IntList indices, BatchContext&) {
      const NoGradGuard no_grad;
      return pin(dataset->get_batch(indices));
    };
  return [=](IntList indices, BatchContext& context) {
    const NoGradGuard no_grad;
    const auto n = int64_t(indices.size());
    // Its random numbers come in the order in which single examples would draw them.
    std::array<Made, kTogether> ahead;
    const auto example = [&](int64_t k) {
      const int64_t index = indices[size_t(k)];
      if (slow && k % kTogether == 0)
        context.for_each(std::min(kTogether, n - k), [&](int64_t j) {
          Made& made = ahead[size_t(j)];
          try {
            made.batch = dataset->get(indices[size_t(k + j)]);
          } catch (...) {
            made.error = std::current_exception();
          }
        });
      at_example(index);
      Example e = slow ? Example(ahead[size_t(k % kTogether)].get()) : dataset->get(index);
      if (transform) e = transform(std::move(e), context.generator);
      at_example(-1);
      return e;
    };
    if (!collate_fn) return collate(n, example, pinned);
    std::vector<Example> examples;
    for (int64_t k = 0; k < n; ++k) examples.push_back(example(k));
    return pin(collate_fn(examples));
  };
}

Batch Made::get(const std::string& where) {
  if (!error) return std::move(batch);
  std::string place = example < 0 ? "" : "example " + std::to_string(example);
  if (!place.empty() && !where.empty()) place += ", ";
  place += where;
  if (place.empty()) std::rethrow_exception(error);
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    throw_again(e, e.message() + " (" + place + ")", e.hint());
  }
}

Made try_to_make(const BatchMaker& maker, IntList indices, Generator& generator,
                 const ForEach& for_each) {
  BatchContext context{generator, for_each};
  Made made;
  at_example(-1);
  try {
    made.batch = maker(indices, context);
  } catch (...) {
    made.error = std::current_exception();
    made.example = example_at_work;
  }
  return made;
}

Made make_batch(const BatchMaker& maker, IntList indices, uint64_t seed, int64_t number,
                Generator& generator, const ForEach& for_each) {
  generator.set_state(stream_of_batch(seed, number));
  Generator* const before = set_thread_generator(&generator);
  Made made = try_to_make(maker, indices, generator, for_each);
  set_thread_generator(before);
  return made;
}

}  // namespace arete::data
