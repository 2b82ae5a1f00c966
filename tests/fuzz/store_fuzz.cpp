// Whatever a stranger says to the server of a store, it answers or closes the connection, and keeps
// and sends no more than its limits.
#include <cstdint>
#include <cstdlib>

#include "arete/distributed/store_server_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::distributed;
  StoreState state;
  StoreSession waiting(state), session(state);
  std::string hello(1, char(Query::validate));
  hello.append(reinterpret_cast<const char*>(&kStoreMagic), sizeof(kStoreMagic));
  std::string wait = hello + char(Query::wait);
  append_number(wait, 1);
  append_text(wait, "k");
  if (!waiting.receive(wait) || !session.receive(hello)) std::abort();
  // The first byte says where the rest is cut.
  const size_t cut = size == 0 ? 0 : data[0] % size;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (session.receive(bytes.substr(0, cut))) session.receive(bytes.substr(cut));
  if (state.keys.size() > size) std::abort();
  if (waiting.out.size() > 1) std::abort();
  return 0;
}
