// Answers HTTP requests for one text, from a thread of its own. With a token, only requests that
// carry it ("Authorization: Bearer …") get the text; others get 401.
//
// Invariants:
// 1. No reader makes another wait: sockets do not block, and each is served as soon as it is ready.
// 2. At most kMostReaders are connected. One more takes the place of the one that has been silent
//    longest; if all have asked, of the one that has been connected longest.
// 3. A reader that has not asked, or has not taken its answer, after kScrapePatience is closed.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/fd.h"
#include "net/io/tcp_listener.h"

namespace thalweg::net {

class ScrapeServer {
 public:
  static constexpr std::size_t kMostReaders = 16;
  static constexpr std::size_t kMostRequest = 4096;  // bytes; no reader's request is longer
  static constexpr Duration kScrapePatience = Duration::milliseconds(2000);

  // `stop`: an eventfd. `token`: empty if there is none. `text` is called in the server's thread
  // for every request that is answered with it.
  ScrapeServer(Fd listener, Fd stop, std::string token, std::function<std::string()> text);
  ~ScrapeServer();
  ScrapeServer(const ScrapeServer&) = delete;
  ScrapeServer& operator=(const ScrapeServer&) = delete;

 private:
  struct Reader {
    Fd fd;
    Time until;
    std::string request = {};
    std::string answer = {};  // empty: it has not asked yet
    std::size_t sent = 0;
  };

  void serve();
  void admit(Fd fd);
  // Receives and sends what the socket allows. Returns false if the reader is to be closed.
  bool advance(Reader& reader);
  bool receive(Reader& reader);
  // The answer to a request, whole or as much of it as is read.
  [[nodiscard]] std::string answer_to(std::string_view request) const;
  [[nodiscard]] bool may_ask(std::string_view request) const;
  static bool send(Reader& reader);
  void drop_one();

  TcpListener listener_;
  Fd stop_;
  std::string token_;
  std::function<std::string()> text_;
  std::list<Reader> readers_;  // in the order in which they came
  std::thread thread_;
};

}  // namespace thalweg::net
