// The fixed parts of the page that shows a history of memory.
#pragma once

#include <string_view>

namespace arete::memory {

extern const std::string_view kMemoryPageHead, kMemoryPageTail;

}  // namespace arete::memory
