# Builds build/$(LIBRARY) from src/*.c, for the folder whose Makefile includes this. Needs a C11 compiler, nothing else.
CC ?= cc
CFLAGS ?= -O2 -g -flto
override CFLAGS += -std=c11 -fPIC -Wall -Wextra -Werror -Wshadow -Wmissing-prototypes -MMD -MP

SOURCES = $(wildcard src/*.c)
OBJECTS = $(SOURCES:src/%.c=build/%.o)

build/$(LIBRARY): $(OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@.new $^
	mv -f $@.new $@

build/%.o: src/%.c Makefile ../library.mk
	@mkdir -p build
	$(CC) $(CFLAGS) -c -o $@ $<

clean:
	rm -rf build

.PHONY: clean
-include $(OBJECTS:.o=.d)
