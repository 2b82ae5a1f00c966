#include "arete/prim/context.h"

namespace arete::prim::detail {

thread_local constinit const Context* kept_context = nullptr;

}  // namespace arete::prim::detail
