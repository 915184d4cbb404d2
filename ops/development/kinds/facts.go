//go:debug gotypesalias=0

// Facts prints the Go types of Kubernetes packages as JSON. Python (writing.py) writes api/kinds from them.
//
//	go run facts.go k8s.io/api=DIR k8s.io/apimachinery=DIR … -- k8s.io/api/core/v1 …
//
// Before "--" stand modules with their folders, behind it the packages to print. Packages of other modules are empty to
// the type checker, and errors that follow from this are ignored: no fact depends on them.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
)

// Package is the printed form of one package. Options tells whether it has the kinds of AddToGroupVersion, too.
type Package struct {
	Path      string     `json:"path"`
	Doc       []string   `json:"doc"`
	Group     string     `json:"group"`
	Options   bool       `json:"options"`
	Kinds     []string   `json:"kinds"`
	Types     []Type     `json:"types"`
	Constants []Constant `json:"constants"`
}

// Type is a named type. Earlier is the comment before its own, which has some of the tags. Answers holds the constants in
// the methods that tell the life of a version and the published form of a type, by method. Alias: "type A = B".
type Type struct {
	Name    string            `json:"name"`
	Doc     []string          `json:"doc"`
	Earlier []string          `json:"earlier"`
	Is      string            `json:"is"`
	Alias   bool              `json:"alias"`
	Fields  []Field           `json:"fields"`
	Methods []string          `json:"methods"`
	Answers map[string]string `json:"answers"`
}

// Field is an exported field of a struct.
type Field struct {
	Name     string   `json:"name"`
	Embedded bool     `json:"embedded"`
	Type     string   `json:"type"`
	JSON     string   `json:"json"`
	Protobuf string   `json:"protobuf"`
	Patch    string   `json:"patch"`
	MergeKey string   `json:"mergeKey"`
	Doc      []string `json:"doc"`
}

// Constant is a constant string of a named type.
type Constant struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Value string   `json:"value"`
	Doc   []string `json:"doc"`
}

type source struct {
	files    []*ast.File
	types    *types.Package
	info     *types.Info
	comments map[string]*ast.CommentGroup // "file:line of its end" -> comment
}

// reader parses packages, and is their importer.
type reader struct {
	fileSet *token.FileSet
	modules map[string]string
	known   map[string]*source
}

func main() {
	r := &reader{fileSet: token.NewFileSet(), modules: map[string]string{}, known: map[string]*source{}}
	arguments := os.Args[1:]
	for len(arguments) > 0 && arguments[0] != "--" {
		module, folder, _ := strings.Cut(arguments[0], "=")
		r.modules[module] = folder
		arguments = arguments[1:]
	}
	printed := []Package{}
	for _, path := range arguments[1:] {
		if _, err := r.Import(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		printed = append(printed, r.print(path))
	}
	if err := json.NewEncoder(os.Stdout).Encode(printed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Import returns a type-checked package, an empty one for a package of no listed module.
func (r *reader) Import(path string) (*types.Package, error) {
	if found := r.known[path]; found != nil {
		return found.types, nil
	}
	folder := r.folder(path)
	if folder == "" {
		empty := types.NewPackage(path, filepath.Base(path))
		empty.MarkComplete()
		r.known[path] = &source{types: empty}
		return empty, nil
	}
	found := &source{info: &types.Info{Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}, comments: map[string]*ast.CommentGroup{}}
	names, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	sort.Strings(names)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, "deepcopy.go") {
			continue
		}
		file, err := parser.ParseFile(r.fileSet, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		found.files = append(found.files, file)
		for _, comment := range file.Comments {
			end := r.fileSet.Position(comment.End())
			found.comments[place(end.Filename, end.Line)] = comment
		}
	}
	if len(found.files) == 0 {
		return nil, fmt.Errorf("%s has no Go files in %s", path, folder)
	}
	config := types.Config{Importer: r, IgnoreFuncBodies: true, Error: func(error) {}}
	found.types, _ = config.Check(path, r.fileSet, found.files, found.info)
	r.known[path] = found
	return found.types, nil
}

func (r *reader) folder(path string) string {
	for module, folder := range r.modules {
		if path == module || strings.HasPrefix(path, module+"/") {
			return filepath.Join(folder, strings.TrimPrefix(path, module))
		}
	}
	return ""
}

func place(file string, line int) string { return file + ":" + strconv.Itoa(line) }

// above returns the comment that ends on the line above a position, as Kubernetes' generators find comments.
func (r *reader) above(s *source, at token.Pos) *ast.CommentGroup {
	position := r.fileSet.Position(at)
	return s.comments[place(position.Filename, position.Line-1)]
}

func lines(comment *ast.CommentGroup) []string {
	if comment == nil {
		return []string{}
	}
	return strings.Split(strings.TrimRight(comment.Text(), "\n"), "\n")
}

func (r *reader) print(path string) Package {
	s := r.known[path]
	printed := Package{Path: path, Doc: []string{}, Kinds: []string{}, Types: []Type{}, Constants: []Constant{}}
	methods := map[string][]string{}
	answers := map[string]map[string]string{}
	for _, file := range s.files {
		for _, comment := range file.Comments {
			if comment.End() < file.Package {
				printed.Doc = append(printed.Doc, lines(comment)...)
			}
		}
		ast.Inspect(file, func(node ast.Node) bool { printed.register(node, s); return true })
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv != nil {
				name := receiver(function)
				methods[name] = append(methods[name], function.Name.Name)
				if strings.HasPrefix(function.Name.Name, "APILifecycle") || strings.HasPrefix(function.Name.Name, "OpenAPI") {
					if answers[name] == nil {
						answers[name] = map[string]string{}
					}
					answers[name][function.Name.Name] = returned(function)
				}
			}
		}
	}
	for _, file := range s.files {
		for _, declared := range file.Decls {
			if group, ok := declared.(*ast.GenDecl); ok {
				for _, spec := range group.Specs {
					r.declared(&printed, s, group, spec)
				}
			}
		}
	}
	for at := range printed.Types {
		name := printed.Types[at].Name
		printed.Types[at].Methods, printed.Types[at].Answers = methods[name], answers[name]
		sort.Strings(printed.Types[at].Methods)
	}
	return printed
}

// register notes the group's name, and the kinds that are given to AddKnownTypes.
func (p *Package) register(node ast.Node, s *source) {
	switch found := node.(type) {
	case *ast.ValueSpec:
		if len(found.Names) == 1 && found.Names[0].Name == "GroupName" && len(found.Values) == 1 {
			if named, ok := s.info.Defs[found.Names[0]].(*types.Const); ok {
				p.Group = constant.StringVal(named.Val())
			}
		}
	case *ast.CallExpr:
		called, ok := found.Fun.(*ast.SelectorExpr)
		if ok && called.Sel.Name == "AddToGroupVersion" {
			p.Options = true
		}
		if !ok || !strings.HasPrefix(called.Sel.Name, "AddKnownType") {
			return
		}
		for _, argument := range found.Args {
			if taken, ok := argument.(*ast.UnaryExpr); ok {
				if made, ok := taken.X.(*ast.CompositeLit); ok {
					if name, ok := made.Type.(*ast.Ident); ok {
						p.Kinds = append(p.Kinds, name.Name)
					}
				}
			}
		}
	}
}

func (r *reader) declared(printed *Package, s *source, group *ast.GenDecl, spec ast.Spec) {
	switch found := spec.(type) {
	case *ast.TypeSpec:
		object := s.info.Defs[found.Name]
		if !found.Name.IsExported() || object == nil {
			return
		}
		start := found.Pos()
		if !group.Lparen.IsValid() {
			start = group.Pos()
		}
		own := r.above(s, start)
		made := Type{Name: found.Name.Name, Doc: lines(own), Earlier: []string{}, Fields: []Field{}}
		if own != nil {
			// As for Kubernetes' generators, one blank line stands between the comments.
			position := r.fileSet.Position(own.Pos())
			made.Earlier = lines(s.comments[place(position.Filename, position.Line-2)])
		}
		if node, ok := found.Type.(*ast.StructType); ok {
			made.Is, made.Fields = "struct", r.fields(s, object.Type().Underlying().(*types.Struct), node)
		} else {
			made.Is = types.TypeString(s.info.TypeOf(found.Type), nil)
		}
		made.Alias = found.Assign.IsValid()
		printed.Types = append(printed.Types, made)
	case *ast.ValueSpec:
		for _, name := range found.Names {
			value, ok := s.info.Defs[name].(*types.Const)
			if !ok || value.Val().Kind() != constant.String {
				continue
			}
			if _, named := value.Type().(*types.Named); named {
				printed.Constants = append(printed.Constants, Constant{
					Name: name.Name, Type: types.TypeString(value.Type(), nil), Value: constant.StringVal(value.Val()),
					Doc: lines(r.above(s, found.Pos())),
				})
			}
		}
	}
}

func (r *reader) fields(s *source, structure *types.Struct, node *ast.StructType) []Field {
	made := []Field{}
	at := 0
	for _, each := range node.Fields.List {
		for range max(len(each.Names), 1) {
			field := structure.Field(at)
			tag := reflect.StructTag(structure.Tag(at))
			at++
			if !field.Exported() {
				continue
			}
			made = append(made, Field{
				Name: field.Name(), Embedded: field.Embedded(), Type: types.TypeString(field.Type(), nil),
				JSON: tag.Get("json"), Protobuf: tag.Get("protobuf"),
				Patch: tag.Get("patchStrategy"), MergeKey: tag.Get("patchMergeKey"),
				Doc: lines(r.above(s, each.Pos())),
			})
		}
	}
	return made
}

func receiver(function *ast.FuncDecl) string {
	kind := function.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	return types.ExprString(kind)
}

// returned returns the constants of a function's only return statement: "1.9", or "apps/v1 Deployment".
func returned(function *ast.FuncDecl) string {
	values := []string{}
	ast.Inspect(function.Body, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok {
			values = append(values, strings.Trim(literal.Value, `"`))
		}
		return true
	})
	return strings.Join(values, " ")
}
