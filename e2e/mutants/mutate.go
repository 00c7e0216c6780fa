package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A mutant is one change of one source.
type mutant struct {
	id             int
	dir, path      string
	line           int
	function       string
	source, change string
	nth            int // of those that read the same in a function; 1 for the first
}

// key names a mutant in a way that outlives changes elsewhere in its file.
func (m *mutant) key() string {
	key := fmt.Sprintf("%s %s: %s => %s", m.path, m.function, m.source, m.change)
	if m.nth > 1 {
		key += fmt.Sprintf(" #%d", m.nth)
	}
	return key
}

// A writer finds the mutants of a source, and writes a source that has them
// all, each switched on by its number. So packages are compiled once, and not
// once for each mutant; see overlay.go.txt for what the text calls.
type writer struct {
	*source
	first   int // the number of the first mutant
	mutants []*mutant
	edits   []edit
	covered map[ast.Expr]bool // whose change would be that of what is around them
}

// An edit is text for the place of some bytes.
type edit struct {
	from, to int
	rank     int // the order of edits at one place
	text     string
}

func mutate(s *source, first int) *writer {
	w := &writer{source: s, first: first, covered: make(map[ast.Expr]bool)}
	ast.PreorderStack(s.file, nil, w.visit)
	seen := make(map[string]int)
	for _, m := range w.mutants {
		k := m.key()
		seen[k]++
		m.nth = seen[k]
	}
	return w
}

// visit adds the mutants of a node.
func (w *writer) visit(n ast.Node, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok == token.VAR // a constant or a type has nothing that could be switched
	case *ast.BinaryExpr:
		w.operator(n)
	case *ast.CallExpr:
		w.clamp(n)
		return w.value(n, stack)
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr:
		return w.value(n.(ast.Expr), stack)
	case *ast.SwitchStmt:
		w.cases(n)
	case *ast.TypeSwitchStmt:
		w.typeCases(n)
	case *ast.CompositeLit:
		w.literal(n)
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			w.statement(n, stack)
		}
	case *ast.IncDecStmt:
		w.statement(n, stack)
	}
	return true
}

// operator breaks comparisons and connectives.
func (w *writer) operator(n *ast.BinaryExpr) {
	x, op, y := w.code(n.X), n.Op.String(), w.code(n.Y)
	swapped := func(op string) string { return x + " " + op + " " + y }
	switch n.Op {
	case token.EQL, token.NEQ:
		id := w.add(n, w.code(n), swapped(map[token.Token]string{token.EQL: "!=", token.NEQ: "=="}[n.Op]))
		w.wrap(n, fmt.Sprintf("(mutantOn(%d) != (", id), "))")
	case token.LAND, token.LOR:
		name, other := "mutantAnd", "||"
		if n.Op == token.LOR {
			name, other = "mutantOr", "&&"
		}
		id := w.add(n, w.code(n), swapped(other))
		w.wrap(n, fmt.Sprintf("%s(%d, ", name, id), ") })")
		w.replace(n.OpPos, op, ", func() bool { return (")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		opposite := map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[op]
		bound := map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}[op]
		id := w.add(n, w.code(n), swapped(opposite))
		w.add(n, w.code(n), swapped(bound))
		w.wrap(n, fmt.Sprintf("mutantOrdered(%d, %t, %t, %t, ", id, op[0] == '<', len(op) == 2, op[0] == '>'), ")")
		w.replace(n.OpPos, op, ", ")
	}
}

// clamp takes the greatest for the least, and the least for the greatest.
func (w *writer) clamp(n *ast.CallExpr) {
	name, ok := n.Fun.(*ast.Ident)
	if !ok || w.info.Types[n].Value != nil {
		return
	}
	other := map[types.Object]string{types.Universe.Lookup("min"): "max", types.Universe.Lookup("max"): "min"}[w.info.Uses[name]]
	if other == "" {
		return
	}
	id := w.add(n, w.code(n), other+strings.TrimPrefix(w.code(n), name.Name))
	w.replace(n.Pos(), name.Name+"(", fmt.Sprintf("mutantClamp(%d, %t, ", id, name.Name == "max"))
}

// value breaks what is true or false without an operator, and constants that
// have a type of their own: reasons, codes, usages. It reports whether there is
// more to find within n.
func (w *writer) value(n ast.Expr, stack []ast.Node) bool {
	what := w.info.Types[n]
	_, selector := n.(*ast.SelectorExpr)
	switch {
	case w.covered[n] || what.Type == nil || what.IsType():
	case what.Value != nil && what.Value.Kind() == constant.Bool:
		id := w.add(n, w.code(n), fmt.Sprint(!constant.BoolVal(what.Value)))
		w.wrap(n, fmt.Sprintf("(mutantOn(%d) != ", id), ")")
	case what.Value == nil && isBool(what.Type) && w.decides(n, stack):
		id := w.add(n, w.code(n), "!"+w.code(n))
		w.wrap(n, fmt.Sprintf("(mutantOn(%d) != ", id), ")")
	case what.Value != nil && isWord(what) && !fixed(n, stack):
		id := w.add(n, w.code(n), "the zero value")
		w.wrap(n, fmt.Sprintf("mutantZero(%d, ", id), ")")
		return !selector
	}
	return !selector || what.Value == nil
}

// decides reports whether the program goes one way or another with n.
func (w *writer) decides(n ast.Expr, stack []ast.Node) bool {
	switch p := stack[len(stack)-1].(type) {
	case *ast.IfStmt:
		return p.Cond == n
	case *ast.ForStmt:
		return p.Cond == n
	case *ast.UnaryExpr:
		return p.Op == token.NOT
	case *ast.BinaryExpr:
		return p.Op == token.LAND || p.Op == token.LOR
	case *ast.ReturnStmt:
		return true
	}
	return false
}

// isBool is for bool itself: another type is not what a comparison yields.
func isBool(t types.Type) bool { return types.Identical(t, types.Typ[types.Bool]) }

// isWord reports whether a constant is one of a closed set of words, and not
// their zero. How loud a log line is decides nothing.
func isWord(c types.TypeAndValue) bool {
	named, ok := c.Type.(*types.Named)
	if !ok || named.Obj().Pkg() == nil || slices.Contains([]string{"time", "io/fs", "log/slog"}, named.Obj().Pkg().Path()) {
		return false
	}
	switch c.Value.Kind() {
	case constant.String:
		return constant.StringVal(c.Value) != ""
	case constant.Int:
		return constant.Sign(c.Value) != 0
	default:
		return false
	}
}

// fixed reports whether n is one side of a comparison or a case, which is broken
// as a whole, or must be a constant.
func fixed(n ast.Expr, stack []ast.Node) bool {
	switch p := stack[len(stack)-1].(type) {
	case *ast.BinaryExpr:
		return p.Op == token.EQL || p.Op == token.NEQ
	case *ast.CaseClause, *ast.ArrayType:
		return true
	case *ast.KeyValueExpr:
		return p.Key == n
	}
	return false
}

// cases takes away the cases of a switch. One with a tag is written as one
// without, since the cases of constants must be known to the compiler.
func (w *writer) cases(n *ast.SwitchStmt) {
	tag := ""
	if n.Tag != nil {
		if n.Init != nil {
			return // there is no place for the tag
		}
		tag = fmt.Sprintf("mutantTag%d == ", w.next())
		w.wrap(n.Tag, fmt.Sprintf("mutantTag%d := (", w.next()), ");")
	}
	for _, clause := range n.Body.List {
		c := clause.(*ast.CaseClause)
		for _, x := range c.List {
			id := w.add(x, "case "+w.code(x), "taken away")
			w.wrap(x, fmt.Sprintf("(!mutantOn(%d) && %s(", id, tag), "))")
		}
	}
}

// typeCases takes away the cases of a switch over types.
func (w *writer) typeCases(n *ast.TypeSwitchStmt) {
	var x ast.Expr
	switch a := n.Assign.(type) {
	case *ast.AssignStmt:
		x = a.Rhs[0].(*ast.TypeAssertExpr).X
	case *ast.ExprStmt:
		x = a.X.(*ast.TypeAssertExpr).X
	}
	for _, clause := range n.Body.List {
		for _, t := range clause.(*ast.CaseClause).List {
			if !w.info.Types[t].IsType() {
				continue // nil
			}
			id := w.add(t, "case "+w.code(t), "taken away")
			w.wrap(x, fmt.Sprintf("mutantHide[%s](%d, ", w.code(t), id), ")")
		}
	}
}

// literal drops the elements of slices and maps, and the fields of our own and
// of crypto's structs.
func (w *writer) literal(n *ast.CompositeLit) {
	t := w.info.Types[n].Type
	switch u := t.Underlying().(type) {
	case *types.Slice:
		if len(n.Elts) == 0 || n.Type == nil || types.Identical(u.Elem(), types.Typ[types.Byte]) || isScale(t) {
			return
		}
		first := w.next()
		for _, e := range n.Elts {
			w.add(e, w.code(e), "left out")
		}
		w.wrap(n, fmt.Sprintf("mutantWithout(%d, ", first), ")")
	case *types.Map:
		w.keys(n)
	case *types.Struct:
		w.fields(n, t)
	}
}

func (w *writer) keys(n *ast.CompositeLit) {
	first := w.next()
	var keys strings.Builder
	for _, e := range n.Elts {
		key := w.code(e.(*ast.KeyValueExpr).Key)
		w.add(e, w.code(e), "left out")
		keys.WriteString(", " + key)
	}
	if len(n.Elts) > 0 && n.Type != nil {
		w.wrap(n, fmt.Sprintf("mutantWithoutKey(%d, ", first), keys.String()+")")
	}
}

func (w *writer) fields(n *ast.CompositeLit, t types.Type) {
	named, ok := types.Unalias(t).(*types.Named)
	if ok && !strings.HasPrefix(named.Obj().Pkg().Path(), w.home) && !strings.HasPrefix(named.Obj().Pkg().Path(), "crypto/") {
		return
	}
	for _, e := range n.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok || !w.canBeZero(field.Value) || isScale(w.info.Types[field.Value].Type) {
			continue
		}
		w.covered[field.Value] = true
		id := w.add(e, w.code(e), "left out")
		name := "mutantZero"
		if c := w.info.Types[field.Value]; c.Value != nil {
			if basic, ok := c.Type.(*types.Basic); ok {
				name += "[" + basic.Name() + "]"
			}
		}
		w.wrap(field.Value, fmt.Sprintf("%s(%d, ", name, id), ")")
	}
}

// isScale is for the buckets of histograms: how finely something is measured
// decides nothing.
func isScale(t types.Type) bool {
	return types.Identical(t, types.NewSlice(types.Typ[types.Float64]))
}

// canBeZero reports whether the value of a field says more than no value.
func (w *writer) canBeZero(v ast.Expr) bool {
	what := w.info.Types[v]
	if what.IsNil() {
		return false
	}
	if what.Value == nil {
		return true
	}
	switch what.Value.Kind() {
	case constant.Bool:
		return constant.BoolVal(what.Value)
	case constant.String:
		return constant.StringVal(what.Value) != ""
	default:
		return constant.Sign(what.Value) != 0
	}
}

// statement leaves out an assignment.
func (w *writer) statement(n ast.Stmt, stack []ast.Node) {
	switch stack[len(stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		if c, ok := stack[len(stack)-1].(*ast.CommClause); ok && c.Comm == n {
			return
		}
		id := w.add(n, w.code(n), "left out")
		w.wrap(n, fmt.Sprintf("if !mutantOn(%d) { ", id), " }")
	}
}

// next is the number of the mutant that is added next.
func (w *writer) next() int { return w.first + len(w.mutants) }

func (w *writer) add(n ast.Node, source, change string) int {
	m := &mutant{id: w.next(), dir: w.dir, path: w.path, line: w.set.Position(n.Pos()).Line, function: w.around(n), source: source, change: change}
	w.mutants = append(w.mutants, m)
	return m.id
}

// around names the declaration that a node is in.
func (w *writer) around(n ast.Node) string {
	for _, d := range w.file.Decls {
		if n.Pos() < d.Pos() || n.Pos() >= d.End() {
			continue
		}
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				return d.Name.Name
			}
			recv, _, _ := strings.Cut(w.code(d.Recv.List[0].Type), "[")
			return strings.TrimPrefix(recv, "*") + "." + d.Name.Name
		case *ast.GenDecl:
			return w.code(d.Specs[0].(*ast.ValueSpec).Names[0])
		}
	}
	return ""
}

// code is the text of a node, in one line.
func (w *writer) code(n ast.Node) string {
	return strings.Join(strings.Fields(string(w.text[w.at(n.Pos()):w.at(n.End())])), " ")
}

func (w *writer) at(p token.Pos) int { return w.set.Position(p).Offset }

// wrap puts text around a node. At one place that of an inner node is closed
// before that of an outer one, which was found before it, and opened after it.
func (w *writer) wrap(n ast.Node, before, after string) {
	from, to, rank := w.at(n.Pos()), w.at(n.End()), len(w.edits)+1
	w.edits = append(w.edits, edit{from, from, rank, before}, edit{to, to, -rank, after})
}

func (w *writer) replace(p token.Pos, old, text string) {
	w.edits = append(w.edits, edit{w.at(p), w.at(p) + len(old), len(w.edits) + 1, text})
}

// written is the source with all its mutants in it.
func (w *writer) written() []byte {
	slices.SortFunc(w.edits, func(a, b edit) int { return cmp.Or(a.from-b.from, a.rank-b.rank) })
	var out []byte
	done := 0
	for _, e := range w.edits {
		out = append(append(out, w.text[done:e.from]...), e.text...)
		done = e.to
	}
	return append(out, w.text[done:]...)
}
