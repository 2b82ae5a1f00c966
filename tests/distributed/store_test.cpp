#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "arete/base/distributed_error.h"
#include "arete/distributed/socket_internal.h"
#include "arete/distributed/store_server_internal.h"
#include "arete/distributed/tcp_store.h"

namespace arete::distributed {
namespace {

using std::chrono::steady_clock;

class TemporaryFolder {
 public:
  TemporaryFolder()
      : path(std::filesystem::temp_directory_path() /
             ("arete_store_" + std::to_string(getpid()) + "_" +
              std::to_string(steady_clock::now().time_since_epoch().count()))) {
    std::filesystem::create_directories(path);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  const std::filesystem::path path;
};

TcpStoreOptions server_options() { return {.port = 0, .is_server = true}; }

// Two stores of each kind over the same keys.
struct StoreCase {
  const char* name;
  std::function<std::pair<StorePtr, StorePtr>(const TemporaryFolder&)> make;
};

const StoreCase kCases[] = {
    {"hash",
     [](const TemporaryFolder&) {
       const auto store = std::make_shared<HashStore>();
       return std::pair<StorePtr, StorePtr>(store, store);
     }},
    {"file",
     [](const TemporaryFolder& folder) {
       const std::string path = folder.path / "store";
       return std::pair<StorePtr, StorePtr>(std::make_shared<FileStore>(path, 2),
                                            std::make_shared<FileStore>(path, 2));
     }},
    {"tcp",
     [](const TemporaryFolder&) {
       const auto server = std::make_shared<TCPStore>("localhost", server_options());
       return std::pair<StorePtr, StorePtr>(
           server,
           std::make_shared<TCPStore>("127.0.0.1", TcpStoreOptions{.port = server->port()}));
     }},
    {"prefix",
     [](const TemporaryFolder&) {
       const auto store = std::make_shared<HashStore>();
       return std::pair<StorePtr, StorePtr>(std::make_shared<PrefixStore>("p", store),
                                            std::make_shared<PrefixStore>("p", store));
     }},
};

class Stores : public testing::TestWithParam<StoreCase> {};

TEST_P(Stores, do_what_the_interface_says) {
  const TemporaryFolder folder;
  const auto [a, b] = GetParam().make(folder);
  const auto one = [](std::string key) { return std::vector{std::move(key)}; };
  const int64_t before = a->num_keys();
  EXPECT_FALSE(a->check(one("x")));
  a->set("x", std::string_view("a\0b", 3));
  EXPECT_EQ(b->get("x"), std::string("a\0b", 3));
  b->set("x", "");
  EXPECT_EQ(a->get("x"), "");
  EXPECT_TRUE(a->check(one("x")));
  EXPECT_FALSE(a->check(std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(a->check({}));
  EXPECT_EQ(a->add("n", 5), 5);
  EXPECT_EQ(b->add("n", -7), -2);
  EXPECT_EQ(b->get("n"), "-2");
  EXPECT_EQ(a->compare_set("c", "old", "new"), "old");
  EXPECT_FALSE(b->check(one("c")));
  EXPECT_EQ(a->compare_set("c", "", "first"), "first");
  EXPECT_EQ(b->compare_set("c", "", "second"), "first");
  EXPECT_EQ(b->compare_set("c", "first", "second"), "second");
  EXPECT_EQ(a->get("c"), "second");
  a->append("l", "ab");
  b->append("l", "c");
  EXPECT_EQ(a->get("l"), "abc");
  EXPECT_EQ(a->num_keys() - before, 4);
  EXPECT_TRUE(b->delete_key("x"));
  EXPECT_FALSE(a->delete_key("x"));
  EXPECT_FALSE(a->check(one("x")));
  const std::vector<std::string> keys = {"k1", "k2"}, values = {"1", "2"};
  a->multi_set(keys, values);
  EXPECT_EQ(b->multi_get(keys), values);
}

TEST_P(Stores, wait_for_keys) {
  const TemporaryFolder folder;
  const auto stores = GetParam().make(folder);
  const StorePtr a = stores.first, b = stores.second;
  std::thread late([&] {
    std::this_thread::sleep_for(Milliseconds(30));
    b->set("x", "1");
    b->add("y", 1);
  });
  a->wait(std::vector<std::string>{"x", "y", "x"});
  late.join();
  const auto start = steady_clock::now();
  try {
    a->wait(std::vector<std::string>{"x", "z"}, Milliseconds(50));
    FAIL();
  } catch (const DistributedError& e) {
    EXPECT_EQ(e.failure(), DistributedError::Failure::store);
    EXPECT_NE(std::string(e.what()).find("wait timeout after 50ms, keys: "), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("z"), std::string::npos);
  }
  EXPECT_GE(steady_clock::now() - start, Milliseconds(50));
  a->set_timeout(Milliseconds(20));
  EXPECT_EQ(a->timeout(), Milliseconds(20));
  EXPECT_THROW(a->get("z"), DistributedError);
  a->set("z", "there");
  EXPECT_EQ(a->get("z"), "there");
}

TEST_P(Stores, count_from_many_threads) {
  const TemporaryFolder folder;
  const auto stores = GetParam().make(folder);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) (t % 2 ? stores.first : stores.second)->add("n", 1);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(stores.first->add("n", 0), 200);
}

INSTANTIATE_TEST_SUITE_P(All, Stores, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(FileStore, is_removed_by_the_last) {
  const TemporaryFolder folder;
  const std::string path = folder.path / "store";
  auto a = std::make_unique<FileStore>(path, 2);
  a->set("k", "v");
  a.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  auto b = std::make_unique<FileStore>(path, 2);
  EXPECT_EQ(b->get("k"), "v");
  b.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileStore, bears_half_a_record) {
  const TemporaryFolder folder;
  const std::string path = folder.path / "store";
  FileStore store(path);
  store.set("k", "v");
  const std::string half("\x05\0\0\0/long\x40\0\0\0begun", 18);
  for (size_t n = 1; n <= half.size(); ++n) {
    std::ofstream(path, std::ios::binary | std::ios::app) << half.substr(0, n);
    FileStore other(path);
    EXPECT_EQ(other.get("k"), "v");
    EXPECT_EQ(store.get("k"), "v");
    EXPECT_FALSE(store.check({{"long"}}));
    store.set("n", std::to_string(n));
    EXPECT_EQ(FileStore(path).get("n"), std::to_string(n));
  }
  std::ofstream(path, std::ios::binary | std::ios::app) << "these are no records";
  EXPECT_THROW(store.get("k"), DistributedError);
}

TEST(FileStore, refuses_what_is_no_store) {
  const TemporaryFolder folder;
  const std::string path = folder.path / "store";
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << std::string("\x01\0\0\0a\xff\xff\xff\xff", 9).substr(0, random() % 10)
        << std::string(random() % 20, char(random()));
    try {
      FileStore store(path);
    } catch (const Error&) {
    }
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "these are no records";
  EXPECT_THROW(FileStore{path}, DistributedError);
  EXPECT_THROW(FileStore{(folder.path / "none" / "store").string()}, IoError);
}

TEST(HashStore, adds_to_numbers_only) {
  HashStore store;
  store.set("x", "12a");
  EXPECT_THROW(store.add("x", 1), ValueError);
  store.set("x", "9223372036854775807");
  EXPECT_THROW(store.add("x", 1), ValueError);
}

TEST(TCPStore, waits_for_workers) {
  TcpStoreOptions options = server_options();
  options.world_size = 2;
  options.timeout = Milliseconds(60);
  try {
    TCPStore alone("localhost", options);
    FAIL();
  } catch (const DistributedError& e) {
    EXPECT_NE(std::string(e.what()).find("1/2 clients joined"), std::string::npos) << e.what();
  }
}

TEST(TCPStore, says_that_a_port_is_taken) {
  const TCPStore first("localhost", server_options());
  TcpStoreOptions options = server_options();
  options.port = first.port();
  try {
    TCPStore second("localhost", options);
    FAIL();
  } catch (const DistributedError& e) {
    EXPECT_EQ(e.failure(), DistributedError::Failure::network);
    EXPECT_NE(std::string(e.what()).find("EADDRINUSE"), std::string::npos) << e.what();
  }
}

TEST(TCPStore, shares_a_server_if_told_to) {
  TcpStoreOptions options = server_options();
  options.multi_tenant = true;
  TCPStore first("localhost", options);
  options.port = first.port();
  TCPStore second("localhost", options);
  first.set("k", "v");
  EXPECT_EQ(second.get("k"), "v");
}

TEST(TCPStore, says_that_nobody_answers) {
  uint16_t port;
  {
    const Descriptor taken = listen_at("localhost", 0);
    port = port_of(taken);
  }
  try {
    TCPStore client("127.0.0.1", {.port = port, .timeout = Milliseconds(50)});
    FAIL();
  } catch (const DistributedError& e) {
    EXPECT_NE(std::string(e.what()).find("The client socket has timed out after 50ms"),
              std::string::npos)
        << e.what();
  }
}

TEST(TCPStore, notices_that_the_server_is_gone) {
  auto server = std::make_unique<TCPStore>("localhost", server_options());
  TCPStore client("127.0.0.1", {.port = server->port()});
  std::thread end([&] {
    std::this_thread::sleep_for(Milliseconds(20));
    server.reset();
  });
  EXPECT_THROW(client.get("never"), DistributedError);
  end.join();
  EXPECT_THROW(client.add("n", 1), DistributedError);
}

TEST(TCPStore, listens_on_loopback_unless_told_otherwise) {
  EXPECT_TRUE(is_loopback("localhost"));
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("0.0.0.0"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
}

std::string hello() {
  std::string bytes(1, char(Query::validate));
  bytes.append(reinterpret_cast<const char*>(&kStoreMagic), sizeof(kStoreMagic));
  return bytes;
}

TEST(StoreSession, refuses_what_is_no_client) {
  StoreState state;
  EXPECT_FALSE(StoreSession(state).receive("GET / HTTP/1.1\r\n"));
  EXPECT_FALSE(StoreSession(state).receive(std::string("\0abcd", 5)));
  const auto refused = [&](std::string more) {
    StoreSession session(state);
    return !session.receive(hello() + more);
  };
  EXPECT_FALSE(refused(""));
  EXPECT_TRUE(refused(hello()));  // twice
  EXPECT_TRUE(refused("\x7f"));
  std::string long_key(1, char(Query::get));
  append_number(long_key, kMostText + 1);
  EXPECT_TRUE(refused(long_key));
  std::string many(1, char(Query::wait));
  append_number(many, kMostTexts + 1);
  EXPECT_TRUE(refused(many));
  std::string missing(1, char(Query::get));
  append_text(missing, "none");
  EXPECT_TRUE(refused(missing));
  std::string wait(1, char(Query::wait));
  append_number(wait, 1);
  append_text(wait, "none");
  EXPECT_FALSE(refused(wait + char(Query::cancel_wait)));
  EXPECT_TRUE(refused(wait + char(Query::num_keys)));
}

TEST(StoreSession, takes_bytes_one_by_one) {
  StoreState state;
  StoreSession session(state);
  std::string bytes = hello() + char(Query::set);
  append_text(bytes, "/k");
  append_text(bytes, "value");
  bytes += char(Query::get);
  append_text(bytes, "/k");
  for (const char c : bytes) ASSERT_TRUE(session.receive({&c, 1}));
  std::string expected;
  append_text(expected, "value");
  EXPECT_EQ(session.out, expected);
}

TEST(StoreSession, keeps_and_sends_no_more_than_its_limits) {
  StoreState state;
  StoreSession session(state);
  ASSERT_TRUE(session.receive(hello()));
  const auto set = [&](const std::string& key, size_t bytes) {
    std::string text(1, char(Query::set));
    append_text(text, key);
    append_text(text, std::string(bytes, 'x'));
    return session.receive(text);
  };
  // The same key again and again is one.
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(set("/k", 8 << 20));
  EXPECT_LT(state.keys.bytes(), uint64_t(9) << 20);
  std::string more(1, char(Query::append));
  append_text(more, "/k");
  append_text(more, "y");
  EXPECT_FALSE(session.receive(more));
  StoreSession other(state);
  std::string many = hello();
  for (int i = 0; i < 20; ++i) {
    many += char(Query::get);
    append_text(many, "/k");
  }
  EXPECT_FALSE(other.receive(many));
  EXPECT_LT(other.out.size(), uint64_t(80) << 20);
  EXPECT_TRUE(state.keys.erase("/k"));
  EXPECT_EQ(state.keys.bytes(), 0u);
}

TEST(StoreSession, reads_a_list_that_comes_slowly_once) {
  StoreState state;
  StoreSession session(state);
  ASSERT_TRUE(session.receive(hello()));
  std::string bytes(1, char(Query::multi_set));
  append_number(bytes, kMostTexts);
  for (uint64_t i = 0; i < kMostTexts; ++i) {
    append_text(bytes, std::to_string(i));
    append_text(bytes, "value");
  }
  const auto begin = steady_clock::now();
  for (size_t at = 0; at < bytes.size(); at += 40)
    ASSERT_TRUE(session.receive(std::string_view(bytes).substr(at, 40)));
  EXPECT_EQ(state.keys.size(), kMostTexts);
  EXPECT_LT(steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(StoreSession, all_together_hold_no_more_than_a_limit) {
  StoreState state;
  {
    StoreSession session(state);
    ASSERT_TRUE(session.receive(hello()));
    std::string begun(1, char(Query::set));
    append_text(begun, "/k");
    append_number(begun, kMostText);
    begun += std::string(4 << 20, 'x');
    ASSERT_TRUE(session.receive(begun));
    EXPECT_GE(state.under_way, uint64_t(4) << 20);
    state.under_way += kMostUnderWay - (uint64_t(5) << 20);  // those of others
    EXPECT_FALSE(session.receive(std::string(3 << 20, 'x')));
    state.under_way -= kMostUnderWay - (uint64_t(5) << 20);
  }
  EXPECT_EQ(state.under_way, 0u);
  // Nor do answers that were sent, or requests that were answered.
  StoreSession session(state);
  ASSERT_TRUE(session.receive(hello()));
  std::string set(1, char(Query::set)), get(1, char(Query::get));
  append_text(set, "/k");
  append_text(set, std::string(4 << 20, 'x'));
  append_text(get, "/k");
  ASSERT_TRUE(session.receive(set + get));
  size_t bytes = 0;
  while (!session.to_send().empty()) {
    const size_t n = std::min<size_t>(session.to_send().size(), 100000);
    bytes += n;
    session.sent(n);
  }
  EXPECT_EQ(bytes, (size_t(4) << 20) + 8);
  EXPECT_LT(state.under_way, uint64_t(1) << 20);
}

TEST(StoreServer, takes_no_more_clients_than_it_is_told) {
  StoreServer server("127.0.0.1", 0, 2);
  const auto client = [&] {
    return std::make_unique<TCPStore>(
        "127.0.0.1", TcpStoreOptions{.port = server.port(), .timeout = Milliseconds(1000)});
  };
  auto a = client(), b = client();
  EXPECT_THROW(client(), DistributedError);
  a.reset();
  b->set("k", "v");
  EXPECT_EQ(client()->get("k"), "v");
}

// Random requests that are right in part, in pieces, on several connections.
TEST(StoreSession, survives_random_bytes) {
  std::mt19937_64 random(7);
  const auto end = steady_clock::now() + Milliseconds(700);
  while (steady_clock::now() < end) {
    StoreState state;
    std::vector<std::unique_ptr<StoreSession>> sessions(3);
    for (int step = 0; step < 200; ++step) {
      auto& session = sessions[random() % sessions.size()];
      std::string bytes;
      if (!session) {
        session = std::make_unique<StoreSession>(state);
        bytes = hello();
      }
      bytes += char(random() % 20);
      for (uint64_t part = random() % 4; part > 0; --part) {
        switch (random() % 5) {
          case 0:
            append_number(bytes, random() % 4);
            break;
          case 1:
            append_number(bytes, random());
            break;
          case 2:
            bytes.append(random() % 6, char(random()));
            break;
          default:
            append_text(bytes, std::string(1, char('a' + random() % 3)));
        }
      }
      const size_t cut = random() % (bytes.size() + 1);
      const std::string_view all = bytes;
      if (!session->receive(all.substr(0, cut)) || !session->receive(all.substr(cut)))
        session.reset();
      else
        session->out.clear();
    }
  }
}

// Strangers at the port neither end the server nor disturb its clients.
TEST(TCPStore, bears_strangers) {
  TCPStore store("localhost", server_options());
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const Descriptor stranger = connect_to("127.0.0.1", store.port(), std::chrono::seconds(10));
    std::string bytes = i % 2 ? hello() : "";
    for (int n = int(random() % 100); n > 0; --n) bytes += char(random());
    try {
      send_all(stranger, bytes);
    } catch (const DistributedError&) {
    }
    EXPECT_EQ(store.add("n", 1), i + 1);
  }
}

}  // namespace
}  // namespace arete::distributed
