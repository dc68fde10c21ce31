#include "runtime/io/resolver.h"

#include <boost/asio/steady_timer.hpp>

#include <utility>

namespace distrun::io {
namespace {

namespace asio = boost::asio;

// A job has an endpoint and up to fifteen successors, which are addresses.
constexpr std::size_t kMaxNames = 64;

}  // namespace

class Resolver::Question : public std::enable_shared_from_this<Question> {
 public:
  Question(asio::io_context& io, Answer answer) : timer_(io), answer_(std::move(answer)) {}

  void answer(Result<Addresses> addresses) {
    timer_.cancel();
    if (const Answer told = std::exchange(answer_, nullptr)) told(std::move(addresses));
  }
  void drop() {
    timer_.cancel();
    answer_ = nullptr;
  }
  void answer_later(Duration delay, Result<Addresses> addresses) {
    timer_.expires_after(delay);
    timer_.async_wait([weak = weak_from_this(),
                       addresses = std::move(addresses)](const boost::system::error_code& failure) {
      const auto self = weak.lock();
      if (self && !failure) self->answer(addresses);
    });
  }

 private:
  asio::steady_timer timer_;
  Answer answer_;
};

Resolver::Resolver(asio::io_context& io)
    : Resolver(io, [&io](const std::string& host, Duration timeout, Answer answer) -> Cancel {
        return [lookup = NameLookup::start(io, host, timeout, std::move(answer))] {
          lookup->cancel();
        };
      }) {}

Resolver::Resolver(asio::io_context& io, Lookup lookup) : io_(io), lookup_(std::move(lookup)) {}

void Resolver::cancel() {
  for (const auto& [host, name] : std::exchange(names_, {})) {
    if (name.cancel) name.cancel();
    for (const auto& asked : name.questions) {
      if (const auto question = asked.lock()) question->drop();
    }
  }
}

std::shared_ptr<Resolver::Question> Resolver::ask(const std::string& host, Duration timeout,
                                                  Answer answer) {
  auto question = std::make_shared<Question>(io_, std::move(answer));
  boost::system::error_code no_address;
  const auto address = asio::ip::make_address(host, no_address);
  if (!no_address) {
    question->answer_later(Duration::zero(), Addresses{address});
    return question;
  }
  if (names_.size() >= kMaxNames && names_.count(host) == 0) {
    std::erase_if(names_, [](const auto& entry) { return !entry.second.cancel; });
  }
  if (names_.size() >= kMaxNames && names_.count(host) == 0) {
    question->answer_later(Duration::zero(),
                           Error{Errc::limit, host + ": too many names are being looked up"});
    return question;
  }
  Name& name = names_[host];
  if (name.known && Clock::now() - name.known_since < kFresh) {
    question->answer_later(Duration::zero(), *name.known);
    return question;
  }
  if (name.known) {
    question->answer_later(timeout, *name.known);
  } else {
    question->answer_later(
        timeout, Error{Errc::timeout, host + ": not looked up within " + duration_text(timeout) +
                                          "; is a name server away?"});
  }
  std::erase_if(name.questions, [](const auto& asked) { return asked.expired(); });
  name.questions.push_back(question);
  if (!name.cancel) {
    name.cancel =
        lookup_(host, kLookup, [this, host](const auto& addresses) { on_answer(host, addresses); });
  }
  return question;
}

void Resolver::on_answer(const std::string& host, const Result<Addresses>& addresses) {
  Name& name = names_.at(host);
  name.cancel = nullptr;
  if (addresses) {
    name.known = *addresses;
    name.known_since = Clock::now();
  }
  const Result<Addresses> told = name.known ? Result<Addresses>(*name.known) : addresses;
  for (const auto& asked : std::exchange(name.questions, {})) {
    if (const auto question = asked.lock()) question->answer(told);  // may ask again
  }
}

}  // namespace distrun::io
