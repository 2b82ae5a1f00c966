// The data sets that the program knows by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arete/data/dataset.h"

namespace arete::cli {

struct DataFolder {
  std::string dataset, folder;
};
/// Where the files of `dataset` are; ValueError for an unknown name, IoError if they are nowhere.
DataFolder find_data(const std::string& dataset, const std::string& folder);
std::shared_ptr<const data::MNIST> open_data(const DataFolder& folder, bool train);
const std::vector<std::string>& class_names(const std::string& dataset);

}  // namespace arete::cli
