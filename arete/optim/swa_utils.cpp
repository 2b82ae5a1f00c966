#include "arete/optim/swa_utils.h"

#include "arete/core/modes.h"
#include "arete/ops/pointwise.h"

namespace arete::optim {

void update_average(const nn::Module& average, const nn::Module& model, Tensor& n_averaged,
                    const AverageOptions& options) {
  const NoGradGuard no_grad;
  std::vector<Tensor> mine = average.parameters(), current = model.parameters();
  const std::vector<Tensor> buffers = average.buffers(), current_buffers = model.buffers();
  const bool fits = mine.size() == current.size() && buffers.size() == current_buffers.size();
  ARETE_CHECK(fits, ValueError("AveragedModel",
                               "the networks have other numbers of parameters or "
                               "buffers"));
  if (options.use_buffers) {
    mine.insert(mine.end(), buffers.begin(), buffers.end());
    current.insert(current.end(), current_buffers.begin(), current_buffers.end());
  }
  const int64_t count = n_averaged.item<int64_t>();
  const double weight = options.decay ? 1 - *options.decay : 1.0 / double(count + 1);
  for (size_t i = 0; i < mine.size(); ++i) {
    Tensor& m = mine[i];
    const Tensor c = current[i].detach().to(m.device());
    if (count == 0)
      m.copy_(c);
    else if (is_integral_or_bool(m.dtype()))
      m.copy_(m + (c - m) * weight);
    else
      m.add_(c.to(m.dtype()) - m, weight);
  }
  if (!options.use_buffers)
    for (size_t i = 0; i < buffers.size(); ++i) {
      Tensor b = buffers[i];
      b.copy_(current_buffers[i].detach());
    }
  n_averaged.fill_(count + 1);
}

}  // namespace arete::optim
