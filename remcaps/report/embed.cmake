# cmake -D INPUT=page.html -D OUTPUT=page.cpp -P embed.cmake
#   A C++ source that holds the page: the installed program needs no data file.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"remcaps/report/html_report_page.h\"

namespace remcaps {

std::string_view html_report_template() {
  static const unsigned char kPage[] = {
${bytes}
};
  return {reinterpret_cast<const char*>(kPage), sizeof kPage};
}

}  // namespace remcaps
")
