// Resolver: host names for connections that have little time each.
//
// A dial waits two seconds for a name, a slow name server answers after five.  So a lookup goes on
// when the dial that began it gives up, and its answer serves the next one; and a name that was
// found once stays found while no name server answers: the job was there.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include "runtime/io/name_lookup.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace distrun::io {

class Resolver {
 public:
  using Addresses = NameLookup::Addresses;
  using Answer = NameLookup::Answer;
  using Cancel = std::function<void()>;
  // Looks a name up, and answers later and once, unless it is cancelled.
  using Lookup = std::function<Cancel(const std::string& host, Duration timeout, Answer answer)>;

  // A lookup goes on for so long without anybody's waiting.
  static constexpr Duration kLookup = std::chrono::seconds(60);
  // An answer is taken for so long without another look.
  static constexpr Duration kFresh = std::chrono::seconds(5);

  explicit Resolver(boost::asio::io_context& io);  // by NameLookup
  Resolver(boost::asio::io_context& io, Lookup lookup);
  ~Resolver() { cancel(); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // A question; not answered any more once it is destroyed.
  class Question;
  // Calls `answer` once, later, from the loop, after `timeout` at most: with the addresses, be they
  // old ones if no others are to be had; or with an error that says why in a clause.
  [[nodiscard]] std::shared_ptr<Question> ask(const std::string& host, Duration timeout,
                                              Answer answer);
  // What is asked is not answered any more.
  void cancel();

 private:
  struct Name {
    Cancel cancel;  // while a lookup goes on
    std::optional<Addresses> known;
    TimePoint known_since{};
    std::vector<std::weak_ptr<Question>> questions;
  };
  void on_answer(const std::string& host, const Result<Addresses>& addresses);

  boost::asio::io_context& io_;
  Lookup lookup_;
  std::map<std::string, Name> names_;
};

}  // namespace distrun::io
