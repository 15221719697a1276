// Streams of C++ and C on an inherited output, and on one that changes.
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <unistd.h>

int main() {
  std::cout << "cout" << std::endl;
  std::printf("printf\n");
  std::fflush(stdout);
  std::cout << "again" << std::endl;
  std::ofstream("by-fstream") << "fstream " << 42 << "\n";
  std::ifstream in("by-fstream");
  std::string word;
  int number = 0;
  in >> word >> number;
  std::cout << word << number << std::endl;
  int fd = open("changed", O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int before = dup(1);
  dup2(fd, 1);
  std::printf("into the file\n");
  std::fflush(stdout);
  dup2(before, 1);
  std::printf("back\n");
  return std::freopen("reopened", "w", stdout) && std::printf("reopened\n") > 0 ? 0 : 1;
}
