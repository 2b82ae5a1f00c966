#include "cli/data.h"

namespace arete::cli {

DataFolder find_data(const std::string& dataset, const std::string& folder) {
  ARETE_CHECK(dataset == "fashion-mnist" || dataset == "mnist",
              ValueError("train", "there is no data set called '" + dataset + "'")
                  .expected("fashion-mnist or mnist"));
  if (dataset == "fashion-mnist") return {dataset, data::FashionMNIST::find_folder(folder)};
  ARETE_CHECK(
      !folder.empty(),
      IoError("train", "the folder of the mnist files is not known").hint("name it with --data"));
  return {dataset, folder};
}

std::shared_ptr<const data::MNIST> open_data(const DataFolder& f, bool train) {
  // Mean and standard deviation of the training images' pixels.
  const bool fashion = f.dataset == "fashion-mnist";
  return std::make_shared<data::MNIST>(f.folder, train, fashion ? 0.2860 : 0.1307,
                                       fashion ? 0.3530 : 0.3081);
}

const std::vector<std::string>& class_names(const std::string& dataset) {
  return dataset == "mnist" ? data::MNIST::class_names() : data::FashionMNIST::class_names();
}

}  // namespace arete::cli
