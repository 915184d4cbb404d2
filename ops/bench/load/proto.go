package main

// The parts of protobuf needed to follow a watch and to renew a Lease as kubelets do, with the metadata as received.
// Field numbers are those of the .proto files of k8s.io/api and apimachinery.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

var envelopeMark = []byte("k8s\x00")

// walk visits the length-delimited fields of a message and skips other fields.
func walk(message []byte, visit func(number uint64, value []byte)) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errors.New("a protobuf tag cut short")
		}
		message = message[n:]
		size, skip := uint64(0), 0
		switch tag & 7 {
		case 0:
			_, skip = binary.Uvarint(message)
		case 1:
			skip = 8
		case 2:
			size, skip = binary.Uvarint(message)
		case 5:
			skip = 4
		default:
			return fmt.Errorf("unexpected protobuf tag %d", tag)
		}
		if skip <= 0 || uint64(len(message)) < uint64(skip)+size {
			return errors.New("a protobuf field longer than its message")
		}
		if tag&7 == 2 {
			visit(tag>>3, message[skip:uint64(skip)+size])
		}
		message = message[uint64(skip)+size:]
	}
	return nil
}

// member returns the last length-delimited field of that number, nil without one.
func member(message []byte, number uint64) []byte {
	var found []byte
	_ = walk(message, func(n uint64, value []byte) {
		if n == number {
			found = value
		}
	})
	return found
}

// raw returns the message in an object's envelope (runtime.Unknown).
func raw(body []byte) []byte {
	envelope, _ := bytes.CutPrefix(body, envelopeMark)
	return member(envelope, 2)
}

func appendField(to []byte, number uint64, value []byte) []byte {
	to = binary.AppendUvarint(to, number<<3|2)
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(to, value...)
}

func appendNumber(to []byte, number, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(to, number<<3), value)
}

func timestamp(at time.Time) []byte {
	return appendNumber(appendNumber(nil, 1, uint64(at.Unix())), 2, uint64(at.Nanosecond()/1000*1000))
}

// lease returns a Lease with the metadata of the last response and a new renewTime.
func lease(metadata []byte, holder string, at time.Time) []byte {
	spec := appendField(nil, 1, []byte(holder))
	spec = appendNumber(spec, 2, 40)
	spec = appendField(spec, 4, timestamp(at))
	object := appendField(appendField(nil, 1, metadata), 2, spec)
	kind := appendField(appendField(nil, 1, []byte("coordination.k8s.io/v1")), 2, []byte("Lease"))
	return appendField(appendField(append([]byte(nil), envelopeMark...), 1, kind), 2, object)
}

// object has the fields of a watched object that a client needs.
type object struct {
	name, uid, version string
	deleting           bool
}

func identify(message []byte) object {
	var s object
	_ = walk(member(message, 1), func(number uint64, value []byte) {
		switch number {
		case 1:
			s.name = string(value)
		case 5:
			s.uid = string(value)
		case 6:
			s.version = string(value)
		case 9:
			s.deleting = true
		}
	})
	return s
}

// events calls visit for each event of a watch, until it ends. A frame is four bytes of length and a WatchEvent.
func events(body io.Reader, visit func(kind string, o object)) error {
	var size [4]byte
	var frame []byte
	for {
		if _, err := io.ReadFull(body, size[:]); err != nil {
			return err
		}
		length := int(binary.BigEndian.Uint32(size[:]))
		if length > 16<<20 {
			return fmt.Errorf("a watch frame of %d bytes", length)
		}
		if cap(frame) < length {
			frame = make([]byte, length)
		}
		frame = frame[:length]
		if _, err := io.ReadFull(body, frame); err != nil {
			return err
		}
		visit(string(member(frame, 1)), identify(raw(member(member(frame, 2), 1))))
	}
}
