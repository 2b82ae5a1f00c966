#include <cstdio>
#include <filesystem>

#include "arete/core/modes.h"
#include "arete/models/classifier.h"
#include "arete/ops/loss.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/run_files.h"

namespace arete::cli {

int evaluate(const EvalOptions& o) {
  const Device device = resolve_device(o.device);
  const std::string path =
      std::filesystem::is_directory(o.checkpoint) ? checkpoint_path(o.checkpoint) : o.checkpoint;
  const SavedRun saved(path);
  const std::string &model = saved.note(kModel), &dataset = saved.note(kDataset);
  nn::Sequential net = models::classifier(model);
  load_weights(saved, net);
  net.to(device);
  net.eval();
  data::DataLoader loader(open_data(find_data(dataset, o.data), false),
                          {.batch_size = o.batch_size});
  const auto& names = class_names(dataset);
  const size_t classes = names.size();
  std::vector<int64_t> confusion(classes * classes, 0);
  double loss = 0;
  int64_t seen = 0, correct = 0;
  const InferenceModeGuard inference;
  for (const data::Batch& batch : loader) {
    const Tensor y = batch.target().to(device);
    const Tensor logits = net(batch.input().to(device));
    loss += cross_entropy(logits, y).item<double>() * double(y.numel());
    const std::vector<int64_t> guess = logits.argmax(1).to_vector<int64_t>();
    const std::vector<int64_t> truth = y.to_vector<int64_t>();
    for (size_t i = 0; i < guess.size(); ++i) {
      ++confusion[size_t(truth[i]) * classes + size_t(guess[i])];
      correct += guess[i] == truth[i];
      ++seen;
    }
  }
  std::printf("%s on %s, %lld test images: loss %.4f, accuracy %.2f %%\n", model.c_str(),
              dataset.c_str(), static_cast<long long>(seen), loss / double(seen),
              100.0 * double(correct) / double(seen));
  std::printf("%-12s %9s  %s\n", "class", "accuracy", "most often taken for");
  for (size_t c = 0; c < classes; ++c) {
    int64_t total = 0;
    size_t worst = c == 0 ? 1 : 0;
    for (size_t g = 0; g < classes; ++g) {
      total += confusion[c * classes + g];
      if (g != c && confusion[c * classes + g] > confusion[c * classes + worst]) worst = g;
    }
    std::printf("%-12s %7.2f %%  %s (%lld)\n", names[c].c_str(),
                100.0 * double(confusion[c * classes + c]) / double(std::max<int64_t>(total, 1)),
                names[worst].c_str(), static_cast<long long>(confusion[c * classes + worst]));
  }
  return 0;
}

}  // namespace arete::cli
