// The `millrace` command.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "client/cli/exit_codes.h"
#include "client/cli/run.h"

int main(int argc, char** argv) {
  // A thread waits for Ctrl-C; every other one is started with the signals blocked. A second Ctrl-C
  // ends the program at once.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::stop_source stop;
  std::thread([&signals, stop]() mutable {
    int signal = 0;
    sigwait(&signals, &signal);
    stop.request_stop();
    sigwait(&signals, &signal);
    _exit(millrace::kExitInterrupted);
  }).detach();

  millrace::Environment environment;
  environment.in = &std::cin;
  environment.out = &std::cout;
  environment.error = &std::cerr;
  environment.terminal = millrace::DetectTerminal(STDOUT_FILENO);
  environment.error_terminal = millrace::DetectTerminal(STDERR_FILENO);
  environment.stop = stop.get_token();
  int code = millrace::RunCommand(std::vector<std::string>(argv + 1, argv + argc), environment);
  std::cout.flush();
  // Output that could not be written (a full disk) is not success.
  if (code == 0 && !std::cout) code = millrace::kExitOther;
  // Without the destructors of statics: the thread above still uses what they would take away.
  _exit(code);
}
