// The loader of C++ for python/tests/test_data_languages.py: walks one over what the JSON object
// in the first argument describes, and prints a checksum of each tensor of each batch, the state in
// which it stopped and what the program's generator gives then.
#include <zlib.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "arete/data/image_folder.h"
#include "arete/data/loader.h"
#include "arete/data/token_dataset.h"
#include "arete/data/transforms.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"

using namespace arete;
using nlohmann::json;

namespace {

// Its items draw from the default generator.
class Noise final : public data::Dataset {
 public:
  int64_t size() const override { return 23; }
  data::Example get(int64_t i) const override { return {rand({3}) + tensor(double(i))}; }
};

data::DatasetPtr dataset_of(const std::string& kind, const std::string& root) {
  if (kind == "pictures") return std::make_shared<data::ImageFolder>(root + "/pictures");
  if (kind == "tokens") return std::make_shared<data::TokenDataset>(root + "/tokens.bin", 5);
  if (kind == "noise") return std::make_shared<Noise>();
  const Tensor x = arange(46, kFloat32).view({23, 2});
  return std::make_shared<data::TensorDataset>(std::vector<Tensor>{x, arange(23)});
}

data::SamplerPtr sampler_of(const std::string& kind, int64_t n) {
  if (kind == "drawn") return std::make_shared<data::RandomSampler>(n, true, 70);
  if (kind == "weighted") {
    std::vector<double> weights;
    for (int64_t i = 0; i < n; ++i) weights.push_back(double(i % 4));
    return std::make_shared<data::WeightedRandomSampler>(weights, 40);
  }
  if (kind == "some")
    return std::make_shared<data::SubsetRandomSampler>(std::vector<int64_t>{0, 2, 3, 5, 7, 8, 1});
  if (kind == "share") return std::make_shared<data::DistributedSampler>(n, 2, 1, true, 6);
  return nullptr;
}

json run(const json& ask) {
  const data::DatasetPtr set = dataset_of(ask["data"], ask["root"]);
  data::DataLoaderOptions options{.batch_size = 4,
                                  .sampler = sampler_of(ask["sampler"], set->size()),
                                  .num_workers = ask["workers"],
                                  .drop_last = ask["drop_last"]};
  options.shuffle = ask["sampler"] == "shuffle";
  options.in_order = ask["in_order"];
  if (ask["device"]) options.device = kCPU;
  if (!ask["seed"].is_null()) options.seed = uint64_t(ask["seed"]);
  namespace t = data::transforms;
  if (ask["data"] == "pictures")
    options.transform = t::compose({t::random_crop(8, 8, 2), t::random_horizontal_flip(),
                                    t::color_jitter(0.3, 0, 0, 0.2), t::to_float()});
  manual_seed(ask["program_seed"]);
  data::DataLoader loader(set, options);
  if (const json& s = ask["state"]; !s.is_null())
    loader.load_state({s["epoch"].is_null() ? 0 : int64_t(s["epoch"]), s["batch"],
                       Generator::State{s["seed"], s["offset"]}, s["later"]});
  json batches = json::array();
  int64_t left = ask["stop"];
  for (int64_t epoch = 0; left > 0 && epoch < ask["epochs"]; ++epoch)
    for (const data::Batch& batch : loader) {
      json sums = json::array();
      for (const Tensor& t : batch)
        sums.push_back(crc32(0, static_cast<const Bytef*>(t.contiguous().data_ptr()),
                             static_cast<uInt>(t.nbytes())));
      batches.push_back(sums);
      if (--left == 0) break;
    }
  const data::LoaderState s = loader.state();
  json state{{"epoch", s.epoch}, {"batch", s.batch}, {"later", s.later}};
  if (s.generator) {
    state["seed"] = s.generator->seed;
    state["offset"] = s.generator->offset;
  }
  return {{"batches", batches}, {"state", state}, {"after", rand({}).item<double>()}};
}

}  // namespace

int main(int, char** argv) {
  try {
    std::puts(run(json::parse(argv[1])).dump().c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
