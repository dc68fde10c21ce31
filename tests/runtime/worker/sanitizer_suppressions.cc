// What the sanitizers cannot see, or see in Gloo.  Asked for by their runtimes when a test starts.

// Gloo's buffers wait, in their destructor, until no other thread uses them: they count the users
// with a shared_ptr.  Debian's libgloo is built without TSan, so that the counting, which orders
// the last use before the destruction, is hidden, and each use looks like a race.  The same holds
// of exceptions that go from thread to thread, whose users libstdc++.so counts.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "race:gloo::transport::tcp::UnboundBuffer::handleRecvCompletion\n"
         "race:gloo::transport::tcp::UnboundBuffer::handleSendCompletion\n"
         "race:gloo::transport::tcp::UnboundBuffer::signalException\n"
         "race:std::__exception_ptr::exception_ptr::_M_release\n";
}

// Gloo forgets what the resolver gave it if no socket can be bound to that.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:gloo::transport::tcp::CreateDeviceAttr\n";
}
