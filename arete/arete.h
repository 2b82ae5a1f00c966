// Everything a program needs: #include "arete/arete.h".
#pragma once

// Tensors and what they are made of.
#include "arete/base/error.h"
#include "arete/core/device.h"
#include "arete/core/dtype.h"
#include "arete/core/generator.h"
#include "arete/core/layout.h"
#include "arete/core/matmul_precision.h"
#include "arete/core/memory_events.h"
#include "arete/core/modes.h"
#include "arete/core/saved_tensor_hooks.h"
#include "arete/core/scalar.h"
#include "arete/core/tensor.h"
#include "arete/device/cuda.h"
#include "arete/device/cuda_kernel.h"
#include "arete/prim/cudnn_switches.h"

// Operators.
#include "arete/ops/activation.h"
#include "arete/ops/aliases.h"
#include "arete/ops/attention.h"
#include "arete/ops/complex.h"
#include "arete/ops/conv.h"
#include "arete/ops/creation.h"
#include "arete/ops/fft.h"
#include "arete/ops/index.h"
#include "arete/ops/linalg.h"
#include "arete/ops/loss.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/norm.h"
#include "arete/ops/numeric.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/search.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/sort.h"
#include "arete/ops/special.h"
#include "arete/ops/statistics.h"

// Differentiation.
#include "arete/autograd/engine.h"
#include "arete/autograd/forward_mode.h"
#include "arete/autograd/function.h"
#include "arete/autograd/gradcheck.h"
#include "arete/autograd/save_on_cpu.h"

// Calls that are recorded once and run many times.
#include "arete/compile/compile.h"
#include "arete/compile/plan.h"

// Random numbers with densities.
#include "arete/distributions/distribution.h"

// Networks.
#include "arete/nn/activation.h"
#include "arete/nn/attention.h"
#include "arete/nn/container.h"
#include "arete/nn/conv.h"
#include "arete/nn/distance.h"
#include "arete/nn/dropout.h"
#include "arete/nn/embedding.h"
#include "arete/nn/init.h"
#include "arete/nn/linear.h"
#include "arete/nn/loss.h"
#include "arete/nn/module.h"
#include "arete/nn/norm.h"
#include "arete/nn/pooling.h"
#include "arete/nn/reshape.h"
#include "arete/nn/rnn.h"
#include "arete/nn/state_dict.h"
#include "arete/nn/transformer.h"
#include "arete/nn/utils.h"

// Training.
#include "arete/amp/autocast.h"
#include "arete/amp/grad_scaler.h"
#include "arete/optim/adafactor.h"
#include "arete/optim/adam.h"
#include "arete/optim/adam_relatives.h"
#include "arete/optim/adaptive.h"
#include "arete/optim/asgd.h"
#include "arete/optim/cyclic_lr.h"
#include "arete/optim/lbfgs.h"
#include "arete/optim/lr_scheduler.h"
#include "arete/optim/muon.h"
#include "arete/optim/optimizer.h"
#include "arete/optim/options.h"
#include "arete/optim/rprop.h"
#include "arete/optim/sgd.h"
#include "arete/optim/swa_utils.h"

// Data and files.
#include "arete/data/dataset.h"
#include "arete/data/image_folder.h"
#include "arete/data/loader.h"
#include "arete/data/sampler.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/io/event_writer.h"
#include "arete/io/html_report.h"
#include "arete/io/metrics_log.h"
#include "arete/io/tensor_io.h"
#include "arete/io/torch_file.h"
#include "arete/metrics/classification.h"
#include "arete/metrics/detection.h"
#include "arete/metrics/regression.h"
#include "arete/models/classifier.h"
#include "arete/profile/ceilings.h"
#include "arete/profile/profiler.h"
#include "arete/profile/roofline.h"
#include "arete/profile/trace.h"
#include "arete/program/program.h"
#include "arete/training/trainer.h"

// Measuring.
#include "arete/profile/benchmark.h"
#include "arete/profile/memory_history.h"
#include "arete/profile/memory_tracker.h"

namespace arete::nn {
/// PyTorch's name for the operators: nn::functional::relu(x).
namespace functional = ::arete;
}  // namespace arete::nn
